//! A block daemon must not wait for memory that the kernel wants to write out through it.

use std::io;

use fs2_store::AlignedBuf;

/// CAP_IPC_LOCK and CAP_SYS_RESOURCE of linux/capability.h.
const IPC_LOCK: u32 = 14;
const SYS_RESOURCE: u32 = 24;
const SYS_ADMIN: u32 = 21;

/// Of linux/prctl.h.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// The effective capabilities of this process, as /proc has them.
fn capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_capabilities(&status).unwrap_or(0)
}

fn parse_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn has(capability: u32) -> bool {
    capabilities() >> capability & 1 == 1
}

/// Whether devices may be made under root's privileges.
pub(crate) fn is_admin() -> bool {
    has(SYS_ADMIN)
}

/// Tells the kernel that this thread, and those it starts from now on, write out what others need freed:
/// their allocations must not wait for I/O on a file system. And keeps in memory what the process touches.
/// Says what of that is not permitted, which matters where the volume is mounted on this machine: else nobody waits for the daemon who
/// has memory that it wants. Call it before other threads are started.
pub(crate) fn become_io_flusher() -> Vec<String> {
    let mut not = Vec::new();
    if !has(SYS_RESOURCE) {
        not.push(
            "no CAP_SYS_RESOURCE: under memory pressure the daemon may wait for its own device".to_owned(),
        );
    } else {
        // SAFETY: sets a flag of this thread; no memory is passed.
        let rc = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
        if rc != 0 {
            not.push(format!("PR_SET_IO_FLUSHER: {}", io::Error::last_os_error()));
        }
    }
    if !has(IPC_LOCK) {
        // Below the limit, later allocations would fail.
        not.push("no CAP_IPC_LOCK: the daemon's memory may be swapped out".to_owned());
        return not;
    }
    // SAFETY: changes how this process's pages are kept; no memory is passed.
    let rc = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
    if rc != 0 {
        not.push(format!("mlockall: {}", io::Error::last_os_error()));
    }
    not
}

/// A buffer whose pages are there and stay.
pub(crate) fn locked_buffer(bytes: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(bytes);
    // Touched here, and not when memory is short.
    for page in buffer.chunks_mut(4096) {
        // A plain store of zero over zero might be left out.
        // SAFETY: a valid byte of the buffer, borrowed for writing.
        unsafe { std::ptr::from_mut(&mut page[0]).write_volatile(0) };
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_as_proc_has_them() {
        assert_eq!(parse_capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n"), Some(0x1ff_ffff_ffff));
        assert_eq!(parse_capabilities("Name:\tx\n"), None);
        assert_eq!(parse_capabilities("CapEff:\tnonsense\n"), None);
        assert!(locked_buffer(10_000).iter().all(|&b| b == 0));
    }
}
