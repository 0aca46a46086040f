//! `mkfs.fs2 [--space SHARE] [--table PATH] [options of mke2fs] DEVICE [BLOCKS]`: what mkfs(8) calls. An empty device gets an ext2
//! file system by mke2fs; an ext2 volume keeps its files; what holds anything else is refused. Where there is nothing yet, and a size is
//! given, a file is made.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fs2_block::BlockSize;

use crate::output::quoted;
use crate::programs::command;
use crate::signals;

/// Exit code of mkfs: refused or failed.
const FAILED: u8 = 1;

pub(super) const HELP: &str = "\
usage: mkfs.fs2 [--space SHARE] [--table PATH] [OPTIONS OF mke2fs] DEVICE [BLOCKS]
  BLOCKS                        how large, in blocks, or as 64M; a file that is not there is made
  --space SHARE, --table PATH   as of mkfs2
  -F                            make a new file system, whatever the device holds
  -n                            only show what mke2fs would make
  others                        go to mke2fs: -b -i -I -L -m -N -T -U -E -O -q -v ...
An ext2 volume is converted as it is, with its files, unless -F is given.

EXAMPLES:
  mkfs -t fs2 -L archive /dev/sdb1
  mkfs.fs2 --space 10% -b 4096 disk.img
  mkfs.fs2 new.img 64M

EXIT CODES: 0 made, 1 refused or failed";

/// The line of it that is said to a wrong command line.
fn usage() -> &'static str {
    HELP.lines().next().unwrap_or_default()
}

/// Options of mke2fs that take a value.
const WITH_VALUE: &str = "bCdeEgGiILlmMNoOrtTUz";

#[derive(Debug, Default, PartialEq, Eq)]
struct Args {
    /// For mkfs2.
    ours: Vec<OsString>,
    /// For mke2fs.
    theirs: Vec<OsString>,
    force: bool,
    quiet: bool,
    /// mke2fs only shows what it would do.
    dry: bool,
    /// The versions are asked for, and nothing else.
    version: bool,
    device: PathBuf,
    blocks: Option<OsString>,
}

fn parse(args: Vec<OsString>) -> Result<Args, String> {
    let mut parsed = Args::default();
    let mut places = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let text = arg.to_str().unwrap_or_default();
        if let Some(name) = text.strip_prefix("--") {
            let known = ["space", "table"].contains(&name.split('=').next().unwrap_or_default());
            if !known {
                return Err(format!("there is no option {text}\n{}", usage()));
            }
            let valued = name.contains('=');
            parsed.ours.push(arg);
            if !valued {
                parsed.ours.push(args.next().ok_or("an option lacks its value")?);
            }
        } else if let Some(letters) = text.strip_prefix('-').filter(|l| !l.is_empty()) {
            let (mut option, mut value) = ('-', None);
            for (at, letter) in letters.char_indices() {
                parsed.force |= letter == 'F';
                parsed.quiet |= letter == 'q';
                parsed.dry |= letter == 'n';
                parsed.version |= letter == 'V';
                option = letter;
                if WITH_VALUE.contains(letter) {
                    value = Some(letters[at + letter.len_utf8()..].to_owned());
                    break;
                }
                refuse(letter, "")?;
            }
            // Without the value, where that stands in the same word.
            let flags = value.as_deref().map(|v| letters.strip_suffix(v).unwrap_or(letters).to_owned());
            let before = parsed.theirs.len();
            parsed.theirs.push(arg);
            if let Some((mut value, flags)) = value.zip(flags) {
                if value.is_empty() {
                    let next = args.next().ok_or("an option lacks its value")?;
                    value = next.to_string_lossy().into_owned();
                    parsed.theirs.push(next);
                }
                refuse(option, &value)?;
                if let Some(flags) = flags.strip_suffix('t') {
                    // mke2fs is told of ext2 once, by us.
                    parsed.theirs.truncate(before);
                    parsed.theirs.extend((!flags.is_empty()).then(|| format!("-{flags}").into()));
                }
            }
        } else {
            places.push(arg);
        }
    }
    if parsed.version {
        return Ok(parsed);
    }
    let mut places = places.into_iter();
    parsed.device = places.next().ok_or_else(usage)?.into();
    parsed.blocks = places.next();
    match places.next() {
        Some(more) => Err(format!("{}: what is that?\n{}", more.display(), usage())),
        None => Ok(parsed),
    }
}

/// What of mke2fs makes no volume that FS2 takes.
fn refuse(option: char, value: &str) -> Result<(), String> {
    let what = match option {
        'j' | 'J' => "a journal".into(),
        't' if value != "ext2" => return Err(format!("-{option} {value}: an FS2 volume is an ext2 volume")),
        // What mke2fs.conf says of these has a journal.
        'T' if value.split(',').any(|kind| ["ext3", "ext4"].contains(&kind)) => "a journal".into(),
        'b' => match value.trim_start_matches('-').parse() {
            Ok(bytes) if BlockSize::new(bytes).is_none() => format!("blocks of {bytes} bytes"),
            _ => return Ok(()),
        },
        'E' if value.split(',').any(|o| o.starts_with("offset")) => "an offset".into(),
        'O' => {
            let known = fs2_ext2::ALLOWED.names();
            let odd = value.split(',').find(|f| {
                !f.is_empty() && *f != "none" && !f.starts_with('^') && !known.iter().any(|k| k == f)
            });
            match odd {
                Some(feature) => format!("the feature {feature}"),
                None => return Ok(()),
            }
        }
        _ => return Ok(()),
    };
    Err(format!("-{option} {value}: FS2 takes no ext2 with {what}"))
}

/// What a device holds.
#[derive(Debug, PartialEq, Eq)]
enum Holds {
    Nothing,
    Ext2,
    Other(String),
}

fn look(device: &Path) -> Result<Holds, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", device.display());
    // Not to wait for who writes to a pipe: of what is no volume it is said below.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(device).map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        crate::mkfs2::open(device, false).map_err(|e| e.to_string())?;
    }
    let mut magic = [0; 2];
    let is_ext = file.read_exact_at(&mut magic, 1080).is_ok() && magic == [0x53, 0xEF];
    let said = command("blkid").args(["-p", "-o", "export"]).arg(device).stderr(Stdio::null()).output();
    let (code, said) = match said {
        Ok(said) => (said.status.code(), String::from_utf8_lossy(&said.stdout).into_owned()),
        Err(_) if is_ext => return Ok(Holds::Ext2),
        Err(e) => return Ok(Holds::Other(format!("nobody knows what (blkid: {e})"))),
    };
    let field = |name: &str| said.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
    Ok(match (code, field("TYPE"), field("PTTYPE")) {
        (_, Some("ext2"), _) => Holds::Ext2,
        (_, Some(other), _) => Holds::Other(format!("{} file system", with_article(other))),
        (_, None, Some(table)) => Holds::Other(format!("{} partition table", with_article(table))),
        // 2: nothing was recognized.
        (Some(2), None, None) => Holds::Nothing,
        _ => Holds::Other("several file systems at once".into()),
    })
}

fn with_article(noun: &str) -> String {
    let an = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if an { "an" } else { "a" })
}

/// A file that was made for a volume: on drop it is gone, unless it is kept.
struct New {
    path: PathBuf,
    file: File,
    kept: bool,
}

impl New {
    /// Makes one where nothing is and a size is known; mke2fs makes it as long.
    fn make(args: &Args) -> Result<Option<New>, String> {
        let path = &args.device;
        match path.symlink_metadata() {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            // A link to what is not there is told of by who opens it.
            _ => return Ok(None),
        }
        let name = path.display();
        if path.starts_with("/dev") {
            return Err(format!("{name}: there is no such device"));
        }
        if args.blocks.is_none() {
            let shown = quoted(path);
            return Err(format!(
                "{name}: not there; to make it: truncate -s SIZE {shown}, or: mkfs.fs2 {shown} SIZE"
            ));
        }
        let making = |e| format!("{name}: making it: {e}");
        let file = File::options().write(true).create_new(true).open(path).map_err(making)?;
        Ok(Some(New { path: path.clone(), file, kept: false }))
    }
}

impl Drop for New {
    fn drop(&mut self) {
        // What took its place meanwhile is somebody's.
        let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let is_ours = self.file.metadata().and_then(|ours| Ok(same(&ours, &self.path.symlink_metadata()?)));
        if !self.kept && is_ours.unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(super) fn run(args: Vec<OsString>) -> u8 {
    match make(args) {
        Ok(code) => code,
        Err(what) => {
            eprintln!("mkfs.fs2: {what}");
            FAILED
        }
    }
}

fn make(args: Vec<OsString>) -> Result<u8, String> {
    let args = parse(args)?;
    if args.version {
        println!("mkfs.fs2 {}", env!("CARGO_PKG_VERSION"));
        return Ok(0);
    }
    let device = args.device.display();
    // Ctrl-C reaches mke2fs, too, and ends it. What is made here is taken away then.
    let caught = signals::catch_for_now().map_err(|e| format!("catching signals: {e}"))?;
    let mut made = New::make(&args)?;
    // What is there already stays as it is, and is given up at once.
    let _caught = made.is_some().then_some(caught);
    let new = match look(&args.device)? {
        _ if args.force => true,
        Holds::Nothing => true,
        Holds::Ext2 if args.blocks.is_some() || args.theirs.iter().any(|a| a != "-q" && a != "-v") => {
            return Err(format!(
                "{device} contains an ext2 file system; mkfs2 {} converts it as it is, -F makes a new one \
                 and what it holds is lost",
                quoted(&args.device)
            ));
        }
        Holds::Ext2 => false,
        Holds::Other(what) => {
            return Err(format!(
                "{device} contains {what}; -F makes an FS2 volume of it and what it holds is lost"
            ));
        }
    };
    let mut line: Vec<OsString> = vec!["mkfs2".into()];
    line.extend(args.quiet.then(|| "--quiet".into()));
    line.extend(args.ours);
    line.extend(["--".into(), args.device.clone().into()]);
    if new {
        // mke2fs asks for no lock of a file. A device it claims itself.
        let claimed = crate::mkfs2::open(&args.device, true).map_err(|e| e.to_string())?;
        crate::mkfs2::check(&line)?;
        let _held = Some(claimed).filter(|c| !c.is_device());
        let mut mke2fs = command("mke2fs");
        mke2fs.args(["-t", "ext2"]).args(&args.theirs).arg(&args.device).args(&args.blocks);
        let ended = mke2fs.status().map_err(|e| format!("mke2fs: {e}; install e2fsprogs"))?;
        if signals::asked() && made.is_some() {
            return Err(format!("{device}: interrupted, and removed again"));
        }
        if !ended.success() {
            return Err(format!("mke2fs ended with {ended}; {device} is no FS2 volume"));
        }
        if args.dry {
            return Ok(0);
        }
    }
    let (done, code) =
        crate::mkfs2::run_told(line, &mut crate::output::Words::new(), &mut crate::output::Complaints::new());
    if let Some(made) = &mut made {
        made.kept = done;
        if !done {
            eprintln!("mkfs.fs2: {device}: removed again");
        }
    }
    Ok(u8::try_from(code).unwrap_or(FAILED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Args, String> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn options_go_to_whom_they_belong() {
        let a = parsed("--space 10% -b 1024 -Lname -q /dev/sdb1 5000 --table=/t").unwrap();
        assert_eq!(a.ours, ["--space", "10%", "--table=/t"]);
        assert_eq!(a.theirs, ["-b", "1024", "-Lname", "-q"]);
        assert_eq!((a.device.to_str(), a.blocks), (Some("/dev/sdb1"), Some("5000".into())));
        assert!(a.quiet && !a.force);
        let a = parsed("-qFO none,filetype -b -1024 x").unwrap();
        assert!(a.quiet && a.force);
        assert_eq!(a.theirs, ["-qFO", "none,filetype", "-b", "-1024"]);
        // mkfs2 was run behind a mke2fs that had only shown what it would do.
        for (line, dry) in [
            ("-n x", true),
            ("-Fn x", true),
            ("-F -vn x", true),
            ("-qnb 1024 x", true),
            ("-Ln x", false),
            ("-F -N 9 x", false),
        ] {
            assert_eq!(parsed(line).unwrap().dry, dry, "{line}");
        }
        for (line, theirs) in
            [("-t ext2 x", &[][..]), ("-text2 -q x", &["-q"]), ("-Ft ext2 -q x", &["-F", "-q"])]
        {
            assert_eq!(parsed(line).unwrap().theirs, theirs, "{line}");
        }
        assert!(parsed("-V").unwrap().version);
        assert_eq!((with_article("ext4"), with_article("gpt")), ("an ext4".into(), "a gpt".into()));
        for bad in [
            "",
            "-b",
            "-j x",
            "-t ext4 x",
            "-qt ext4 x",
            "-T small,ext4 x",
            "--spce 1 x",
            "a 1 2",
            "--space",
            "-qj x",
            "-Ohas_journal x",
            "-FO ^dir_index,extent x",
            "-b 65536 x",
            "-E offset=1 x",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
