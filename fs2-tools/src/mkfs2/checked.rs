//! Whether a volume's bitmaps may be believed: e2fsck is asked.
//!
//! It runs under our lock and changes nothing. A device that is held it tells to be in use, and reads it all the same.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fs2_engine::offline::{Phase, Progress};
use fs2_ext2::Layout;
use fs2_store::{FileStore, StoreIo};

use super::{Bar, Refusal};
use crate::output::quoted;
use crate::programs::{USUAL, find};

/// Has `e2fsck -f -n` look at all of the volume; refuses what it does not call good, and what may not be done before that is `again`.
pub(super) fn by_e2fsck(
    device: &Path,
    volume: &FileStore,
    again: &str,
    bar: &mut Bar,
) -> Result<(), Refusal> {
    let (name, shown) = (device.display(), quoted(device));
    let before = superblock(device, volume)?;
    let program = find("e2fsck", std::env::var_os("PATH").as_deref(), USUAL).ok_or_else(|| Refusal {
        what: format!(
            "{name}: it was mounted or written since it was last checked, and there is no e2fsck to check it"
        ),
        next: Some(format!("install e2fsprogs, or where it is installed: e2fsck -f {shown}; then: {again}")),
    })?;
    let mut command = Command::new(program);
    // Where it is in its work comes on standard error, a line each.
    command.args(["-f", "-n", "-C", "2", "--"]).arg(device).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = command.spawn().and_then(|child| watch(child, bar));
    bar.clear();
    let (code, said) = ran.map_err(|e| Refusal::io(device, "running e2fsck", e))?;
    match code {
        Some(0) => {}
        // Errors that it left as they are.
        Some(4) => {
            return Err(Refusal {
                what: format!("{name}: e2fsck finds errors: {said}"),
                next: Some(format!("mend them: e2fsck -f {shown}; then: {again}")),
            });
        }
        code => {
            let code = code.map_or("by a signal".to_owned(), |code| format!("with {code}"));
            return Err(Refusal { what: format!("{name}: e2fsck -f -n ended {code}: {said}"), next: None });
        }
    }
    if superblock(device, volume)? != before {
        let what = format!("{name}: was mounted while it was being checked");
        return Err(Refusal { what, next: Some(format!("unmount it, then: {again}")) });
    }
    Ok(())
}

fn superblock(device: &Path, volume: &FileStore) -> Result<[u8; 1024], Refusal> {
    let layout = Layout::read(&mut StoreIo::new(volume)).map_err(|e| Refusal::of(e.into(), device, None))?;
    Ok(*layout.superblock().raw())
}

/// Waits for it and shows how far it is. Its exit code, and the first it says of what is wrong.
fn watch(mut child: Child, bar: &mut Bar) -> std::io::Result<(Option<i32>, String)> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    // Read beside the other: whichever is full would hold it up.
    let words = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = out.map(|mut out| out.read_to_end(&mut all));
        String::from_utf8_lossy(&all).into_owned()
    });
    let mut complaints = String::new();
    for line in err.into_iter().flat_map(|err| BufReader::new(err).split(b'\n')) {
        let line = String::from_utf8_lossy(&line?).into_owned();
        match progress(&line) {
            Some(progress) => bar.update(progress),
            None => complaints += &(line + "\n"),
        }
    }
    let code = child.wait()?.code();
    let words = words.join().unwrap_or_default();
    Ok((code, finding(&words, &complaints)))
}

/// What a line of progress says: pass, and how much of how much of it is done.
fn progress(line: &str) -> Option<Progress> {
    let mut numbers = line.split(' ').map(str::parse::<u64>);
    let (Some(Ok(pass)), Some(Ok(done)), Some(Ok(total))) = (numbers.next(), numbers.next(), numbers.next())
    else {
        return None;
    };
    (1..=5).contains(&pass).then_some(Progress { phase: Phase::Check(pass as u8), done, total })
}

/// The first line that is no heading.
fn finding(words: &str, complaints: &str) -> String {
    let is_heading = |line: &str| {
        line.is_empty() || ["Pass ", "Warning!", "e2fsck 1."].iter().any(|start| line.starts_with(start))
    };
    let mut lines = words.lines().chain(complaints.lines()).map(str::trim);
    lines.find(|line| !is_heading(line)).unwrap_or("nothing of what it is").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_e2fsck_writes_is_understood() {
        let at = |pass, done, total| Some(Progress { phase: Phase::Check(pass), done, total });
        assert_eq!(progress("1 23 8192 /dev/sdb1"), at(1, 23, 8192));
        assert_eq!(progress("5 4 4 a file of 3 words"), at(5, 4, 4));
        for other in ["", "e2fsck 1.47.0 (5-Feb-2023)", "1 2", "0 1 2 x", "6 1 2 x", "1 a 2 x"] {
            assert_eq!(progress(other), None, "{other}");
        }
        let words = "Warning!  v is in use.\nPass 5: Checking group summary information\n\
                     Block bitmap differences:  +(9000--9009)\nFix? no\n\n\nv: ** WARNING: Filesystem still has errors **\n";
        let banner = "e2fsck 1.47.0 (5-Feb-2023)\n";
        assert_eq!(finding(words, banner), "Block bitmap differences:  +(9000--9009)");
        assert_eq!(finding("", &format!("{banner}no such device\n")), "no such device");
    }
}
