//! Log lines of llama.cpp and ggml, turned into `tracing` events.
//!
//! llama.cpp logs pieces of lines: a continuation has its own level and belongs to the line before it. Pieces are joined
//! per thread until the line ends. Levels map one to one; the target is `llama_cpp`.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ffi;

#[derive(Default)]
struct Line {
    level: ffi::ggml_log_level,
    text: String,
}

thread_local! {
    static LINE: RefCell<Line> = RefCell::default();
    static CAPTURED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Sends every further log line to `tracing`.
pub(crate) fn install() {
    // SAFETY: the callback is a function without state, so it stays valid for ever.
    unsafe { ffi::llama_log_set(Some(on_log), std::ptr::null_mut()) };
}

/// Runs `work` and answers, beside its result, the error lines that were logged on this thread meanwhile.
pub(crate) fn capture<T>(work: impl FnOnce() -> T) -> (T, String) {
    let before = CAPTURED.with_borrow_mut(|captured| captured.replace(Vec::new()));
    let result = work();
    let lines = CAPTURED.with_borrow_mut(|captured| std::mem::replace(captured, before));
    (result, lines.unwrap_or_default().join("; "))
}

unsafe extern "C" fn on_log(
    level: ffi::ggml_log_level,
    text: *const c_char,
    _user_data: *mut c_void,
) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated text that lives until this returns.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // A subscriber is foreign code and may panic; that must not unwind into C++.
    let _ = catch_unwind(AssertUnwindSafe(|| take(level, &text)));
}

fn take(level: ffi::ggml_log_level, text: &str) {
    let lines = LINE.try_with(|line| {
        let mut line = line.borrow_mut();
        let mut done = Vec::new();
        if level != ffi::GGML_LOG_LEVEL_CONT {
            if !line.text.is_empty() {
                done.push((line.level, std::mem::take(&mut line.text)));
            }
            line.level = level;
        }
        line.text.push_str(text);
        while let Some(end) = line.text.find('\n') {
            let rest = line.text.split_off(end + 1);
            let mut whole = std::mem::replace(&mut line.text, rest);
            whole.truncate(whole.trim_end().len());
            done.push((line.level, whole));
        }
        done
    });
    // Nothing is borrowed any more when foreign code runs: a subscriber may itself call something that logs.
    for (level, text) in lines.unwrap_or_default() {
        if !text.is_empty() {
            emit(level, &text);
        }
    }
}

fn emit(level: ffi::ggml_log_level, text: &str) {
    if level == ffi::GGML_LOG_LEVEL_ERROR {
        let _ = CAPTURED.try_with(|captured| {
            if let Some(lines) = captured.borrow_mut().as_mut() {
                lines.push(text.to_owned());
            }
        });
    }
    match level {
        ffi::GGML_LOG_LEVEL_ERROR => tracing::error!(target: "llama_cpp", "{text}"),
        ffi::GGML_LOG_LEVEL_WARN => tracing::warn!(target: "llama_cpp", "{text}"),
        ffi::GGML_LOG_LEVEL_INFO => tracing::info!(target: "llama_cpp", "{text}"),
        ffi::GGML_LOG_LEVEL_DEBUG => tracing::debug!(target: "llama_cpp", "{text}"),
        _ => tracing::trace!(target: "llama_cpp", "{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(pieces: &[(ffi::ggml_log_level, &str)]) -> String {
        capture(|| {
            for (level, text) in pieces {
                take(*level, text);
            }
        })
        .1
    }

    #[test]
    fn a_continuation_joins_the_line_before_it() {
        let lines = logged(&[
            (ffi::GGML_LOG_LEVEL_ERROR, "loading"),
            (ffi::GGML_LOG_LEVEL_CONT, " ."),
            (ffi::GGML_LOG_LEVEL_CONT, ".\n"),
        ]);
        assert_eq!(lines, "loading ..");
    }

    #[test]
    fn several_lines_in_one_piece_are_several_events() {
        assert_eq!(
            logged(&[(ffi::GGML_LOG_LEVEL_ERROR, "one\ntwo\n")]),
            "one; two"
        );
    }

    #[test]
    fn a_line_without_an_end_is_flushed_by_the_next_line() {
        let lines = logged(&[
            (ffi::GGML_LOG_LEVEL_ERROR, "half"),
            (ffi::GGML_LOG_LEVEL_INFO, "whole\n"),
        ]);
        assert_eq!(lines, "half");
    }

    #[test]
    fn only_errors_are_captured() {
        assert_eq!(logged(&[(ffi::GGML_LOG_LEVEL_WARN, "warning\n")]), "");
    }
}
