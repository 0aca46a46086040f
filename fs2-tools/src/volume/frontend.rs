//! Which way the kernel reaches the daemon where nobody says which.

use fs2d::settings::FrontendKind;

use crate::kernel::nbd_available;

/// The best frontend this machine has, and why no better one: ublk, whose device survives the daemon and needs no socket; NBD,
/// whose device survives it too; else FUSE, which every kernel has.
pub fn best_frontend() -> (FrontendKind, Option<String>) {
    choose(ublk_available(), nbd_available)
}

fn choose(
    ublk: Result<(), String>,
    nbd: impl FnOnce() -> Result<(), String>,
) -> (FrontendKind, Option<String>) {
    let Err(no_ublk) = ublk else { return (FrontendKind::Ublk, None) };
    match nbd() {
        Ok(()) => (FrontendKind::Nbd, Some(no_ublk)),
        Err(no_nbd) => (FrontendKind::Fuse, Some(format!("{no_ublk}; {no_nbd}"))),
    }
}

/// Whether this kernel makes ublk devices that survive their daemon. Loads the module where there is one.
fn ublk_available() -> Result<(), String> {
    if !std::path::Path::new("/dev/ublk-control").exists() {
        // What it says is asked for below.
        let _ = crate::programs::command("modprobe").args(["-q", "ublk_drv"]).status();
    }
    match fs2d::frontend::ublk::offer() {
        Ok(offer) if offer.recovery => Ok(()),
        Ok(offer) => {
            Err(format!("this kernel's ublk devices do not survive their daemon ({})", offer.features))
        }
        Err(e) => Err(format!("no ublk: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_there_is_with_the_reason() {
        let has = |ublk: Result<(), &str>, nbd: Result<(), &str>| {
            let (kind, why) = choose(ublk.map_err(String::from), || nbd.map_err(String::from));
            (kind, why.unwrap_or_default())
        };
        assert_eq!(has(Ok(()), Err("not asked")), (FrontendKind::Ublk, String::new()));
        assert_eq!(has(Err("no ublk"), Ok(())), (FrontendKind::Nbd, "no ublk".into()));
        assert_eq!(has(Err("no ublk"), Err("no nbd")), (FrontendKind::Fuse, "no ublk; no nbd".into()));
    }
}
