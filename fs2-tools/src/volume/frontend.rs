//! Which way the kernel reaches the daemon where nobody says which.

use fs2d::settings::FrontendKind;

use crate::kernel::nbd_available;

/// The best frontend this machine has, and why no better one: NBD, whose device survives the daemon; else FUSE, which every
/// kernel has.
pub fn best_frontend() -> (FrontendKind, Option<String>) {
    choose(nbd_available())
}

fn choose(nbd: Result<(), String>) -> (FrontendKind, Option<String>) {
    match nbd {
        Ok(()) => (FrontendKind::Nbd, None),
        Err(why) => (FrontendKind::Fuse, Some(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_there_is_with_the_reason() {
        assert_eq!(choose(Ok(())), (FrontendKind::Nbd, None));
        assert_eq!(choose(Err("no module".into())), (FrontendKind::Fuse, Some("no module".into())));
    }
}
