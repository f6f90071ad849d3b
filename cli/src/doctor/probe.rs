//! CPU features, tried: one instruction of each feature set is executed in a child process.
//!
//! That the processor reports a feature is not enough: some virtual machines report AMX and trap at its first
//! instruction. A trap ends only the child.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_arch = "aarch64")]
use super::probe_aarch64::PROBES;
#[cfg(target_arch = "x86_64")]
use super::probe_x86::PROBES;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const PROBES: &[Probe] = &[];

/// One feature set: how to ask for it, and how to try it.
pub struct Probe {
    pub name: &'static str,
    /// What the processor and the operating system say.
    pub reported: fn() -> bool,
    /// Executes an instruction of the set; traps if the machine cannot.
    pub attempt: fn() -> Attempt,
}

/// What came of an instruction that did not trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    Right,
    Wrong,
    /// The kernel refused to let this process use the registers.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "only AMX has to be asked for")
    )]
    Refused,
}

impl From<bool> for Attempt {
    fn from(right: bool) -> Self {
        if right { Self::Right } else { Self::Wrong }
    }
}

/// What is known of a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Works,
    /// Reported, and its first instruction is an illegal one.
    Traps,
    /// Reported, and the instruction gave another result than it should.
    WrongResult,
    /// Reported, and the kernel does not let us use it.
    Refused,
    NotReported,
    /// Reported, and trying it ended in another way; the text says how.
    Unclear(String),
}

impl Finding {
    /// A word for people and for JSON.
    pub fn word(&self) -> String {
        match self {
            Self::Works => "works".into(),
            Self::Traps => "traps (SIGILL)".into(),
            Self::WrongResult => "wrong result".into(),
            Self::Refused => "refused by the kernel".into(),
            Self::NotReported => "not reported".into(),
            Self::Unclear(how) => format!("unclear ({how})"),
        }
    }
}

/// A feature and what was found.
pub struct Feature {
    pub name: &'static str,
    pub finding: Finding,
}

/// An instruction that is illegal everywhere: the control arm, which shows that a trap is noticed.
const CONTROL: &str = "control";

const CHILD_WRONG: u8 = 10;
const CHILD_REFUSED: u8 = 11;
const CHILD_UNKNOWN: u8 = 12;
const CHILD_PATIENCE: Duration = Duration::from_secs(20);

/// Tries every feature of this architecture that is reported.
pub fn all() -> Vec<Feature> {
    PROBES
        .iter()
        .map(|probe| {
            let finding = if (probe.reported)() {
                try_in_child(probe.name)
            } else {
                Finding::NotReported
            };
            Feature {
                name: probe.name,
                finding,
            }
        })
        .collect()
}

/// Whether an instruction that is illegal everywhere is seen to trap. If not, no finding here means anything.
pub fn control() -> Finding {
    try_in_child(CONTROL)
}

/// The child's part: executes the instruction of `name` and says with its exit code what came of it.
pub fn attempt(name: &str) -> u8 {
    no_core_file();
    if name == CONTROL {
        illegal();
        return CHILD_WRONG;
    }
    match PROBES.iter().find(|probe| probe.name == name) {
        None => CHILD_UNKNOWN,
        Some(probe) => match (probe.attempt)() {
            Attempt::Right => 0,
            Attempt::Wrong => CHILD_WRONG,
            Attempt::Refused => CHILD_REFUSED,
        },
    }
}

fn try_in_child(name: &str) -> Finding {
    let child = env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.args(["doctor", "--try", name]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    });
    match child {
        Err(error) => Finding::Unclear(format!("cannot start a child process: {error}")),
        Ok(child) => wait(child).map_or_else(Finding::Unclear, judge),
    }
}

fn wait(mut child: Child) -> Result<ExitStatus, String> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if start.elapsed() < CHILD_PATIENCE => thread::sleep(Duration::from_millis(1)),
            Ok(None) => {
                // Failing to kill it means that it has just ended; either way it gave no answer in time.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer in {} s", CHILD_PATIENCE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn judge(status: ExitStatus) -> Finding {
    let code = status
        .code()
        .map(|code| u8::try_from(code).unwrap_or(CHILD_UNKNOWN));
    match (code, status.signal()) {
        (Some(0), _) => Finding::Works,
        (Some(CHILD_WRONG), _) => Finding::WrongResult,
        (Some(CHILD_REFUSED), _) => Finding::Refused,
        (_, Some(libc::SIGILL)) => Finding::Traps,
        _ => Finding::Unclear(status.to_string()),
    }
}

fn no_core_file() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: setrlimit only reads `none`, which outlives the call; lowering a limit is always allowed.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
}

fn illegal() {
    // SAFETY: the instruction is defined to trap and touches nothing; the process is a child made to be lost.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("ud2", options(nomem, nostack))
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("udf #0", options(nomem, nostack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_control_is_none_of_them() {
        let mut names: Vec<_> = PROBES
            .iter()
            .map(|probe| probe.name)
            .chain([CONTROL])
            .collect();
        names.sort_unstable();
        let n = names.len();
        names.dedup();
        assert_eq!(names.len(), n);
    }

    fn exited(code: u8) -> ExitStatus {
        ExitStatus::from_raw(i32::from(code) << 8)
    }

    #[test]
    fn exit_statuses_are_told_apart() {
        assert_eq!(judge(ExitStatus::from_raw(0)), Finding::Works);
        assert_eq!(judge(exited(CHILD_WRONG)), Finding::WrongResult);
        assert_eq!(judge(exited(CHILD_REFUSED)), Finding::Refused);
        assert_eq!(judge(ExitStatus::from_raw(libc::SIGILL)), Finding::Traps);
        assert!(matches!(
            judge(ExitStatus::from_raw(libc::SIGSEGV)),
            Finding::Unclear(_)
        ));
        assert!(matches!(judge(exited(CHILD_UNKNOWN)), Finding::Unclear(_)));
    }

    #[test]
    fn an_unknown_name_is_said() {
        assert_eq!(attempt("no-such-feature"), CHILD_UNKNOWN);
    }
}
