//! A thread's priorities. Linux has them per thread, so a script's process can have its own here.

use std::io;

/// Sets the calling thread's: `nice` from 0 to 19, and the level (0 highest, 7 lowest) for I/O.
pub(in crate::fsbench) fn set(nice: u64, ioprio: Option<u64>) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_BEST_EFFORT: libc::c_int = 2 << 13;
    if nice > 0 {
        // SAFETY: plain numbers; 0 is the calling thread.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice.min(19) as libc::c_int) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if let Some(level) = ioprio {
        let priority = CLASS_BEST_EFFORT | level.min(7) as libc::c_int;
        // SAFETY: plain numbers; 0 is the calling thread.
        if unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
