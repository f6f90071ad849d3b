//! CUDA modules beside the libraries: what they were built from, and whether they are used. They are read, not run: a machine
//! without a GPU can be asked as well.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSymbol};
use serde::Serialize;

use super::libraries::file_name;

/// The symbol whose text says what a module was built from.
const STAMP: &str = "rkv_cuda_stamp";

/// What ggml calls the backend.
pub const BACKEND: &str = "CUDA";

/// A CUDA module.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct CudaModule {
    pub path: PathBuf,
    /// What it was built from. Absent: it does not say so, as a module of another project.
    pub stamp: Option<String>,
    /// Whether this process has it loaded.
    pub loaded: bool,
    /// What the system says of loading it, where it is not loaded and does not load.
    pub reason: Option<String>,
}

/// Every CUDA module in `folder`; `mapped` are the libraries of this process.
pub fn look(folder: &Path, mapped: &[PathBuf]) -> Vec<CudaModule> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| is_module(path))
        .collect();
    paths.sort();
    let look = |path: PathBuf| {
        let loaded = mapped.iter().any(|library| is_same(library, &path));
        CudaModule {
            stamp: stamp(&path),
            loaded,
            reason: if loaded { None } else { refusal(&path) },
            path,
        }
    };
    paths.into_iter().map(look).collect()
}

/// Problems and notes about the modules, beside libraries that were built from `ours`.
pub fn judge(modules: &[CudaModule], ours: &str, devices: usize) -> (Vec<String>, Vec<String>) {
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    for module in modules {
        let path = module.path.display();
        match &module.stamp {
            Some(stamp) if stamp == ours => {}
            Some(stamp) => problems.push(format!(
                "the CUDA module {path} was built from {stamp}, but the libraries beside it from {ours}, so it is not used: \
                 build it again (`cargo xtask cuda build`), or remove it"
            )),
            None => problems.push(format!(
                "the CUDA module {path} does not say what it was built from, so it is none of this project's: remove it"
            )),
        }
        match (module.loaded, &module.reason) {
            (true, _) if devices == 0 => notes.push(format!(
                "the CUDA module {path} is loaded, but found no device: without a GPU and its driver everything runs on the CPU"
            )),
            (true, _) => {}
            (false, Some(reason)) => notes.push(format!(
                "the CUDA module {path} cannot be loaded ({reason}), so nothing runs on a GPU: put what is missing beside it \
                 (`cargo xtask binaries --cuda` does) or where the system looks for libraries"
            )),
            (false, None) => notes.push(format!("the CUDA module {path} was not taken by ggml, so nothing runs on a GPU")),
        }
    }
    (problems, notes)
}

fn is_module(path: &Path) -> bool {
    let name = file_name(path);
    name.starts_with("libggml-cuda") && name.ends_with(".so")
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b
        || a.canonicalize()
            .ok()
            .is_some_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

/// The text of the module's stamp. Reads only the parts of the file that lead to it.
fn stamp(path: &Path) -> Option<String> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let symbol = file
        .dynamic_symbols()
        .find(|symbol| symbol.name() == Ok(STAMP))?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let bytes = section.data_range(symbol.address(), symbol.size()).ok()??;
    let text = CStr::from_bytes_until_nul(bytes).ok()?;
    Some(text.to_string_lossy().into_owned())
}

/// What the system's loader says of the module; nothing where it loads.
fn refusal(path: &Path) -> Option<String> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path is NUL-terminated and outlives the call. ggml's loader opened the same file before, so its constructors
    // run for the second time at most.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: the call before this one failed, so dlerror answers a text, which stays until this thread's next call.
        let text = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
        return Some(text.map_or_else(
            || "no reason given".into(),
            |text| text.to_string_lossy().into_owned(),
        ));
    }
    // SAFETY: the handle came from dlopen and is not used afterwards.
    unsafe { libc::dlclose(handle) };
    None
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn module(stamp: Option<&str>, loaded: bool, reason: Option<&str>) -> CudaModule {
        CudaModule {
            path: "/lib/libggml-cuda.so".into(),
            stamp: stamp.map(str::to_owned),
            loaded,
            reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn a_module_of_the_same_build_with_a_device_is_no_matter() {
        let judged = judge(&[module(Some("s"), true, None)], "s", 1);
        assert_eq!(judged, (vec![], vec![]));
    }

    #[test]
    fn a_module_of_another_build_is_named_with_both_stamps() {
        let (problems, _) = judge(
            &[module(Some("llama.cpp a, kernels 1"), false, None)],
            "llama.cpp a, kernels 2",
            0,
        );
        for part in [
            "/lib/libggml-cuda.so",
            "kernels 1",
            "kernels 2",
            "cargo xtask cuda build",
        ] {
            assert!(problems[0].contains(part), "{part}: {problems:?}");
        }
        let (problems, _) = judge(&[module(None, true, None)], "s", 1);
        assert!(
            problems[0].contains("none of this project's"),
            "{problems:?}"
        );
    }

    #[test]
    fn why_nothing_runs_on_a_gpu_is_a_note() {
        let (problems, notes) = judge(
            &[module(Some("s"), false, Some("libcudart.so.13: not found"))],
            "s",
            0,
        );
        assert!(
            problems.is_empty() && notes[0].contains("libcudart.so.13: not found"),
            "{notes:?}"
        );
        let (_, notes) = judge(&[module(Some("s"), true, None)], "s", 0);
        assert!(notes[0].contains("found no device"), "{notes:?}");
        let (_, notes) = judge(&[module(Some("s"), false, None)], "s", 0);
        assert!(notes[0].contains("not taken by ggml"), "{notes:?}");
    }

    #[test]
    fn a_stamp_is_read_and_a_missing_library_named_without_running_anything() {
        let dir = tempfile::tempdir().unwrap();
        let cc = |args: &[&str]| {
            let mut command = Command::new("cc");
            command.args(["-shared", "-fPIC", "-x", "c", "a.c", "-o"]);
            command.args(args).current_dir(dir.path());
            assert!(command.status().unwrap().success());
        };
        fs::write(
            dir.path().join("a.c"),
            "const char rkv_cuda_stamp[] = \"llama.cpp abc\";\n",
        )
        .unwrap();
        cc(&["libgone.so.1", "-Wl,-soname,libgone.so.1"]);
        cc(&[
            "libggml-cuda.so",
            "-Wl,--no-as-needed",
            "-x",
            "none",
            "libgone.so.1",
        ]);
        fs::remove_file(dir.path().join("libgone.so.1")).unwrap();
        fs::write(dir.path().join("libggml-cuda.so.tmp"), "").unwrap();
        let found = look(dir.path(), &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].stamp.as_deref(), Some("llama.cpp abc"));
        assert!(
            found[0].reason.as_ref().unwrap().contains("libgone.so.1"),
            "{found:?}"
        );
        let mapped = look(dir.path(), &[found[0].path.clone()]);
        assert!(mapped[0].loaded && mapped[0].reason.is_none());
    }
}
