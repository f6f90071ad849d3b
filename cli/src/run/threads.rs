//! How many CPU threads to use when nobody says.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::thread;

/// One thread for each physical core, but no more than this process may run at a time.
pub fn fitting() -> u32 {
    let allowed = thread::available_parallelism().map_or(1, NonZero::get);
    let cores = match physical_cores(Path::new("/sys/devices/system/cpu")) {
        0 => allowed,
        cores => cores,
    };
    cores.min(allowed).try_into().unwrap_or(u32::MAX)
}

/// Counts the sets of hardware threads that share a core. 0: the system does not say.
fn physical_cores(cpus: &Path) -> usize {
    let entries = fs::read_dir(cpus).into_iter().flatten().flatten();
    let siblings = entries.filter_map(|cpu| {
        fs::read_to_string(cpu.path().join("topology/thread_siblings_list")).ok()
    });
    siblings.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_threads_of_one_core_count_once() {
        let cpus = tempfile::tempdir().unwrap();
        for (cpu, siblings) in [
            ("cpu0", "0,2"),
            ("cpu1", "1,3"),
            ("cpu2", "0,2"),
            ("cpu3", "1,3"),
        ] {
            let topology = cpus.path().join(cpu).join("topology");
            fs::create_dir_all(&topology).unwrap();
            fs::write(topology.join("thread_siblings_list"), siblings).unwrap();
        }
        fs::create_dir(cpus.path().join("cpufreq")).unwrap();
        assert_eq!(physical_cores(cpus.path()), 2);
        assert_eq!(physical_cores(&cpus.path().join("none")), 0);
    }

    #[test]
    fn there_is_at_least_one_thread() {
        assert!(fitting() >= 1);
    }
}
