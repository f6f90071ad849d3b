//! The text of a patch: a header, then a plain unified diff that only adds.

use crate::patch::{FilePatch, Hunk, Line, PatchFault};

/// Bytes before the first `--- ` line.
pub(crate) fn header_len(text: &str) -> usize {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with("--- ") {
            return at;
        }
        at += line.len();
    }
    at
}

/// The diff of a patch; line numbers count from the start of the file.
pub(crate) fn diff(text: &str) -> Result<Vec<FilePatch>, PatchFault> {
    let start = header_len(text);
    let first = text[..start].lines().count();
    let numbered = text[start..]
        .split_inclusive('\n')
        .enumerate()
        .map(|(index, line)| (first + index + 1, line));
    let mut lines = Lines {
        rest: numbered.collect::<Vec<_>>().into_iter().peekable(),
    };
    let mut files = Vec::new();
    while let Some((line, text)) = lines.rest.next() {
        let Some(old) = text.strip_prefix("--- ") else {
            return syntax(
                line,
                format!("{:?} is not a line of a diff", text.trim_end()),
            );
        };
        let target = lines.target(line, old)?;
        let mut hunks = Vec::new();
        while lines
            .rest
            .peek()
            .is_some_and(|(_, text)| text.starts_with("@@"))
        {
            hunks.push(lines.hunk()?);
        }
        if hunks.is_empty() {
            return syntax(line, format!("no hunk follows for {target}"));
        }
        files.push(FilePatch {
            line,
            target,
            hunks,
        });
    }
    if files.is_empty() {
        Err(PatchFault::Empty)
    } else {
        Ok(files)
    }
}

fn syntax<T>(line: usize, reason: impl Into<String>) -> Result<T, PatchFault> {
    Err(PatchFault::Syntax {
        line,
        reason: reason.into(),
    })
}

struct Lines<'a> {
    rest: std::iter::Peekable<std::vec::IntoIter<(usize, &'a str)>>,
}

impl Lines<'_> {
    /// The file that a `---` line (its number and the text after it) and the `+++` line after it name.
    fn target(&mut self, line: usize, old: &str) -> Result<String, PatchFault> {
        let old = old.trim_end_matches(['\r', '\n']);
        let new = match self.rest.next() {
            Some((_, text)) if text.starts_with("+++ ") => text[4..].trim_end_matches(['\r', '\n']),
            _ => return syntax(line, "no +++ line follows"),
        };
        if old == "/dev/null" || new == "/dev/null" {
            return syntax(
                line,
                "a patch neither makes nor deletes a file; a new file belongs into kernels/",
            );
        }
        if old.contains('\t') || new.contains('\t') {
            return syntax(line, "file lines carry no date");
        }
        let outside = |name: &str| PatchFault::Outside {
            line,
            target: name.to_owned(),
        };
        let old_path = old.strip_prefix("a/").ok_or_else(|| outside(old))?;
        let new_path = new.strip_prefix("b/").ok_or_else(|| outside(new))?;
        if old_path != new_path {
            return syntax(
                line,
                format!("{old} and {new} are two files; a patch does not rename"),
            );
        }
        if new_path
            .split('/')
            .any(|part| matches!(part, "" | "." | ".."))
            || new_path.contains('\\')
        {
            return Err(outside(new));
        }
        Ok(new_path.to_owned())
    }

    fn hunk(&mut self) -> Result<Hunk, PatchFault> {
        let Some((line, text)) = self.rest.next() else {
            return Err(PatchFault::Empty);
        };
        let Some([old_start, old_count, new_start, new_count]) =
            ranges(text.trim_end_matches(['\r', '\n']))
        else {
            return syntax(
                line,
                format!(
                    "{:?} is not `@@ -line,count +line,count @@`",
                    text.trim_end()
                ),
            );
        };
        if old_start == 0 || old_count == 0 {
            return syntax(line, "a hunk needs context");
        }
        let (mut old_left, mut new_left, mut lines) = (old_count, new_count, Vec::new());
        while old_left > 0 || new_left > 0 {
            let Some(&(number, text)) = self.rest.peek() else {
                return Err(truncated(line, old_left, new_left));
            };
            let added = match text.as_bytes()[0] {
                b'+' => true,
                b' ' => false,
                b'-' if !text.starts_with("--- a/") => return Err(self.removal()),
                b'\r' | b'\n' => {
                    return syntax(
                        number,
                        "an empty line of context begins with a blank; an editor may have cut it off",
                    );
                }
                _ => return Err(truncated(line, old_left, new_left)),
            };
            self.rest.next();
            if new_left == 0 || (!added && old_left == 0) {
                return syntax(number, "this hunk is longer than its @@ line says");
            }
            new_left -= 1;
            old_left -= usize::from(!added);
            lines.push(Line {
                added,
                number,
                text: text[1..].to_owned(),
            });
            self.no_newline(&mut lines);
        }
        if let Some(&(number, text)) = self.rest.peek() {
            if text.starts_with('-') && !text.starts_with("--- ") {
                return Err(self.removal());
            }
            if text.starts_with(['+', ' ']) {
                return syntax(number, "this hunk is longer than its @@ line says");
            }
        }
        if lines.iter().all(|line| !line.added) {
            return syntax(line, "this hunk adds nothing");
        }
        Ok(Hunk {
            line,
            old_start,
            new_start,
            lines,
        })
    }

    /// Takes the line end off the last line where `\ No newline at end of file` follows it.
    fn no_newline(&mut self, lines: &mut [Line]) {
        if self
            .rest
            .next_if(|(_, text)| text.starts_with('\\'))
            .is_some()
            && let Some(last) = lines.last_mut()
        {
            last.text
                .truncate(last.text.trim_end_matches(['\r', '\n']).len());
        }
    }

    /// What to say about the `-` line that comes next: lines that follow it tell an edit from a removal.
    fn removal(&mut self) -> PatchFault {
        let Some((line, text)) = self.rest.next() else {
            return PatchFault::Empty;
        };
        let text = text[1..].trim_end().to_owned();
        while self
            .rest
            .next_if(|(_, text)| text.starts_with(['-', '\\']))
            .is_some()
        {}
        if self
            .rest
            .peek()
            .is_some_and(|(_, text)| text.starts_with('+'))
        {
            PatchFault::Edits { line, text }
        } else {
            PatchFault::Removes { line, text }
        }
    }
}

fn truncated(line: usize, old_left: usize, new_left: usize) -> PatchFault {
    let reason = format!("{old_left} lines of the old file and {new_left} of the new are missing");
    PatchFault::Truncated { line, reason }
}

/// The four numbers of `@@ -a,b +c,d @@`; a count that is left out is 1.
fn ranges(text: &str) -> Option<[usize; 4]> {
    let inner = text.strip_prefix("@@ -")?.strip_suffix(" @@")?;
    let (old, new) = inner.split_once(" +")?;
    let pair = |text: &str| -> Option<(usize, usize)> {
        match text.split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let ((a, b), (c, d)) = (pair(old)?, pair(new)?);
    Some([a, b, c, d])
}
