//! Exit codes, the same for every command.

/// Everything went well.
pub const OK: u8 = 0;
/// The work was started and failed, or a check found a problem.
pub const FAILURE: u8 = 1;
/// The command line is wrong, or something it needs is missing, so that nothing was done.
pub const COULD_NOT_RUN: u8 = 2;

/// Exit code of a command that stopped because of `signal`: 130 for Ctrl-C, as shells have it.
pub fn interrupted(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(FAILURE)
}
