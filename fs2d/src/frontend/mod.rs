//! Protocols by which a kernel or a program reaches the volume.

pub mod fuse;
pub mod nbd;
mod running;
pub mod ublk;

pub(crate) use running::{Frontend, LOOK_EVERY, MountPoint, serve_on};

/// Whether io_uring_enter(2) can be asked again: completions must be taken first (EBUSY), or the kernel had no memory.
fn is_short(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A moment without memory ended a mount by FUSE's ring, and programs got errors.
    #[test]
    fn a_kernel_without_memory_is_asked_again() {
        let short = |errno| is_short(&std::io::Error::from_raw_os_error(errno));
        assert!([libc::EBUSY, libc::EAGAIN, libc::ENOMEM].into_iter().all(short));
        assert!(![libc::EINTR, libc::EBADF, libc::EINVAL, libc::EOPNOTSUPP].into_iter().any(short));
    }
}
