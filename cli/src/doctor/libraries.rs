//! The shared libraries of llama.cpp that this process has really mapped.

use std::fs;
use std::path::{Path, PathBuf};

/// File names that begin so are ours or llama.cpp's.
const PREFIXES: [&str; 3] = ["libllama", "libggml", "librkv"];

/// The files, each once, sorted. Empty where the system has no list of mappings.
pub fn mapped() -> Vec<PathBuf> {
    from_maps(&fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

fn from_maps(text: &str) -> Vec<PathBuf> {
    // The path is the sixth field and may contain spaces: it begins at the first slash.
    let paths = text
        .lines()
        .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    let mut ours: Vec<_> = paths
        .filter(|path| {
            PREFIXES
                .iter()
                .any(|prefix| file_name(path).starts_with(prefix))
        })
        .collect();
    ours.sort();
    ours.dedup();
    ours
}

/// The CPU module among `libraries`.
pub fn cpu_module(libraries: &[PathBuf]) -> Option<&Path> {
    libraries
        .iter()
        .map(PathBuf::as_path)
        .find(|path| is_cpu_module(path))
}

/// Every CPU module in `folder`, by file name, sorted.
pub fn cpu_modules_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| is_cpu_module(path))
        .map(|path| file_name(&path))
        .collect();
    names.sort();
    names
}

fn is_cpu_module(path: &Path) -> bool {
    let name = file_name(path);
    name.starts_with("libggml-cpu") && name.ends_with(".so")
}

/// The last part of `path`, for people.
pub fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_libraries_are_found_once_also_with_spaces() {
        let text = "7f00-7f01 r-xp 00000000 08:01 1  /a b/bin/libllama.so.0.5.0\n\
                    7f01-7f02 r--p 00000000 08:01 1  /a b/bin/libllama.so.0.5.0\n\
                    7f02-7f03 r-xp 00000000 08:01 2  /lib/libc.so.6\n\
                    7f03-7f04 rw-p 00000000 00:00 0\n\
                    7f04-7f05 r-xp 00000000 08:01 3  /a b/bin/libggml-cpu-zen4.so\n";
        let found = from_maps(text);
        let wanted =
            ["/a b/bin/libggml-cpu-zen4.so", "/a b/bin/libllama.so.0.5.0"].map(PathBuf::from);
        assert_eq!(found, wanted);
        assert_eq!(cpu_module(&found), Some(wanted[0].as_path()));
    }
}
