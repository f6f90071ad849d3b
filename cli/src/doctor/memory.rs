//! Memory of the machine, as far as it decides what fits and how fast it is read.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Sizes in bytes. A field is absent where the system does not say.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    /// What can be had without swapping.
    pub available_bytes: Option<u64>,
    /// Limit of the control group that this process runs in.
    pub group_limit_bytes: Option<u64>,
    /// What may be locked, as pinned host memory is; absent: no limit.
    pub lock_limit_bytes: Option<u64>,
    /// When the kernel makes huge pages by itself: always, madvise or never.
    pub transparent_huge_pages: Option<String>,
    pub huge_page_bytes: Option<u64>,
    pub huge_pages_reserved: Option<u64>,
    pub huge_pages_free: Option<u64>,
}

/// Asks the system.
pub fn look() -> Memory {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Memory {
        group_limit_bytes: group_limit(),
        lock_limit_bytes: lock_limit(),
        transparent_huge_pages: fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .ok()
            .and_then(|text| chosen_in_brackets(&text)),
        ..from_meminfo(&info)
    }
}

fn from_meminfo(text: &str) -> Memory {
    let number = |key: &str| -> Option<u64> {
        let line = text
            .lines()
            .find(|line| line.split(':').next() == Some(key))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let bytes = |key: &str| number(key).map(|kib| kib * 1024);
    Memory {
        total_bytes: bytes("MemTotal"),
        available_bytes: bytes("MemAvailable"),
        huge_page_bytes: bytes("Hugepagesize"),
        huge_pages_reserved: number("HugePages_Total"),
        huge_pages_free: number("HugePages_Free"),
        ..Memory::default()
    }
}

/// `madvise` of `always [madvise] never`.
fn chosen_in_brackets(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// The lowest memory limit of the control group of this process and of its parents.
fn group_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limit = |(folder, file): (PathBuf, &str)| {
        fs::read_to_string(folder.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    group_folders(&groups)
        .into_iter()
        .filter_map(limit)
        .filter(|&bytes| bytes < NO_LIMIT_BYTES)
        .min()
}

/// Version 1 of control groups writes a number of about 2^63 for "no limit".
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// The folders of the groups, with the name of the file that holds the limit, for both versions of control groups.
fn group_folders(groups: &str) -> Vec<(PathBuf, &'static str)> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let own = Path::new(root).join(group.trim_start_matches('/'));
        folders.extend(
            own.ancestors()
                .take_while(|at| at.starts_with(root))
                .map(|at| (at.to_owned(), file)),
        );
    }
    folders
}

fn lock_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: getrlimit writes to `limit`, which outlives the call.
    let answered = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    (answered && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_by_key() {
        let text = "MemTotal:       24000 kB\nMemAvailable:   12000 kB\nHugePages_Total:       3\nHugePages_Free:        2\n\
                    Hugepagesize:       2048 kB\n";
        let memory = from_meminfo(text);
        assert_eq!(memory.total_bytes, Some(24_576_000));
        assert_eq!(memory.available_bytes, Some(12_288_000));
        assert_eq!(memory.huge_page_bytes, Some(2 << 20));
        assert_eq!(
            (memory.huge_pages_reserved, memory.huge_pages_free),
            (Some(3), Some(2))
        );
        assert_eq!(from_meminfo(""), Memory::default());
    }

    #[test]
    fn the_choice_stands_in_brackets() {
        assert_eq!(
            chosen_in_brackets("always [madvise] never\n").as_deref(),
            Some("madvise")
        );
        assert_eq!(chosen_in_brackets("always madvise never\n"), None);
    }

    #[test]
    fn group_folders_of_both_versions_are_found() {
        let found = group_folders("9:pids:/x\n4:memory:/a\n0::/a/b\n");
        let wanted = [
            ("/sys/fs/cgroup/memory/a", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup/a/b", "memory.max"),
            ("/sys/fs/cgroup/a", "memory.max"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        assert_eq!(
            found,
            wanted.map(|(folder, file)| (PathBuf::from(folder), file))
        );
    }
}
