//! How much memory this process may still take.

use std::fs;
use std::path::{Path, PathBuf};

/// Free host memory in bytes: what the system says it can give without swapping, its free swap, and never more than the
/// control group or the address-space limit leaves. `None` when the system does not say.
pub(crate) fn available_bytes() -> Option<u64> {
    let system = meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let group = group_left();
    let space = address_space_left();
    Some([group, space].into_iter().flatten().fold(system, u64::min))
}

fn meminfo(text: &str) -> Option<u64> {
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(field("MemAvailable:")? + field("SwapFree:").unwrap_or(0))
}

/// What the tightest enclosing control group leaves.
fn group_left() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let memory = groups
        .lines()
        .find_map(|line| line.split_once(":memory:").map(|(_, path)| path));

    let v2 = unified.and_then(|path| {
        tightest(
            Path::new("/sys/fs/cgroup"),
            path,
            "memory.max",
            "memory.current",
        )
    });
    let v1 = memory.and_then(|path| {
        tightest(
            Path::new("/sys/fs/cgroup/memory"),
            path,
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        )
    });
    v2.into_iter().chain(v1).min()
}

fn tightest(root: &Path, group: &str, limit: &str, used: &str) -> Option<u64> {
    let own = root.join(group.trim_start_matches('/'));
    own.ancestors()
        .take_while(|dir| dir.starts_with(root))
        .filter_map(|dir| left_in(dir, limit, used))
        .min()
}

fn left_in(dir: &Path, limit: &str, used: &str) -> Option<u64> {
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = number(dir.join(limit))?;
    let used = number(dir.join(used))?;
    // Cached file pages count as used, but are given back on demand.
    let cache = fs::read_to_string(dir.join("memory.stat"))
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find(|line| line.starts_with("inactive_file "))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
    Some(limit.saturating_sub(used.saturating_sub(cache.unwrap_or(0))))
}

fn address_space_left() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit for the call to fill.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    if status != 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    let pages: u64 = fs::read_to_string("/proc/self/statm")
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    // SAFETY: sysconf only reads a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(
        limit
            .rlim_cur
            .saturating_sub(pages * u64::try_from(page_bytes).unwrap_or(4096)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_adds_free_swap_to_available_memory() {
        let text = "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:   40 kB\nSwapFree:  2 kB\n";
        assert_eq!(meminfo(text), Some(42 * 1024));
    }

    #[test]
    fn meminfo_without_the_field_says_nothing() {
        assert_eq!(meminfo("MemTotal: 100 kB\n"), None);
    }

    #[test]
    fn the_tightest_group_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        for (dir, limit, used) in [("a", "1000", "900"), ("a/b", "max", "800")] {
            fs::write(root.path().join(dir).join("memory.max"), limit).unwrap();
            fs::write(root.path().join(dir).join("memory.current"), used).unwrap();
        }
        fs::write(
            root.path().join("a/memory.stat"),
            "anon 5\ninactive_file 50\n",
        )
        .unwrap();
        assert_eq!(
            tightest(root.path(), "/a/b", "memory.max", "memory.current"),
            Some(150)
        );
    }
}
