//! Ctrl-C as a flag: the first one asks the work to stop, the second one ends the process.

use std::sync::atomic::{AtomicI32, Ordering};

/// The first signal that asked us to stop; 0 while none came.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Signals that mean "please stop": Ctrl-C, the polite kill, and a terminal that was closed.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

extern "C" fn on_signal(signal: libc::c_int) {
    if SIGNAL.swap(signal, Ordering::SeqCst) != 0 {
        // SAFETY: _exit is async-signal-safe and does not return; no destructor of the C++ libraries runs.
        unsafe { libc::_exit(128 + signal) }
    }
}

/// Turns the first SIGINT, SIGTERM or SIGHUP into a flag that [`requested`] reads.
///
/// A signal that the parent process set to be ignored (`nohup`, background jobs of a script) stays ignored.
/// Called after the prompt was read, so that waiting for standard input ends at the first Ctrl-C.
pub fn install() {
    for signal in SIGNALS {
        // SAFETY: sigaction is plain data for which all zeroes is a valid value; it is filled in by the call below.
        let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a null new action only reads the old one into `current`, which outlives the call.
        let read = unsafe { libc::sigaction(signal, std::ptr::null(), &mut current) };
        if read != 0 || current.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        // SAFETY: as above, all zeroes is a valid sigaction: no flags, an empty mask, the default handler.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: `on_signal` has the signature of a handler without SA_SIGINFO and only does what is
        // async-signal-safe: one atomic swap and _exit.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

/// The signal that asked us to stop, if one did.
pub fn signal() -> Option<i32> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(signal),
    }
}

/// Whether somebody asked us to stop.
pub fn requested() -> bool {
    signal().is_some()
}
