//! Volumes that cannot be used, or not yet: each program says what is wrong and what to do next, ends with
//! the documented code, and writes nothing.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use fs2_tests::{Need, Rng, Scratch, Served, debugfs, dump, file_digest, mke2fs, needs, run};

const MIB: u64 = 1 << 20;

/// What the programs say of a volume. `DEV` stands for its path.
struct Case<'a> {
    /// `mkfs2`, which ends 1.
    mkfs2: &'a [&'a str],
    /// `fs2d serve`: it is served as a plain device, with these words; `Err`: refused with these, exit code 2.
    /// `--require-active` refuses either way, with the same.
    serve: Result<&'a [&'a str], &'a [&'a str]>,
    /// `chkfs2 -n` and its exit code.
    chkfs2: (i32, &'a [&'a str]),
}

fn ready() -> Option<(Scratch, PathBuf)> {
    let tools = ["mke2fs", "e2fsck", "debugfs", "dumpe2fs"];
    if !needs(&tools.map(Need::Program)) {
        return None;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    Some((scratch, image))
}

impl Case<'_> {
    #[track_caller]
    fn check(&self, scratch: &Scratch, image: &Path) {
        let before = file_digest(image);
        let named = |text: &&str| text.replace("DEV", &image.display().to_string());
        let done = scratch.run("mkfs2", [image]).ended(1);
        let mut said = self.mkfs2.iter().map(named).fold(done, |done, text| done.says(&text));
        assert_eq!(said.out, "", "{}", said.command());
        assert_eq!(file_digest(image), before, "mkfs2 wrote");

        let active = Served::start(scratch, image, &["--require-active", "--lock-wait", "0"]);
        said = active.expect_err("--require-active refuses").ended(2);
        let (Ok(words) | Err(words)) = self.serve;
        said = words.iter().map(named).fold(said, |done, text| done.says(&text));
        assert_eq!(said.err.lines().count(), 1, "one line says it: {}", said.err);
        assert_eq!(file_digest(image), before, "fs2d serve --require-active wrote");

        match Served::start(scratch, image, &["--lock-wait", "0"]) {
            Ok(served) => {
                assert!(self.serve.is_ok(), "served: {}", served.log());
                let status = served.status();
                assert!(status["liveness"].as_str().is_some_and(|l| l.starts_with("inactive: ")), "{status}");
                let log = served.log();
                for text in words.iter().map(named) {
                    assert!(log.contains(&text), "'{text}' is not in {log}");
                }
                served.stop().ended(0);
            }
            Err(done) => {
                assert!(self.serve.is_err(), "refused: {}", done.err);
                words.iter().map(named).fold(done.ended(2), |done, text| done.says(&text));
            }
        }
        assert_eq!(file_digest(image), before, "fs2d serve wrote");

        let (code, words) = self.chkfs2;
        let done = scratch.run("chkfs2", [Path::new("-n"), image]).ended(code);
        words.iter().map(named).fold(done, |done, text| done.says(&text));
        assert_eq!(file_digest(image), before, "chkfs2 -n wrote");
    }
}

#[test]
fn no_ext2() {
    let Some((scratch, image)) = ready() else { return };
    fs::write(&image, Rng::new(1).bytes(3 << 20)).unwrap();
    let what = "DEV: not an ext2 volume: no magic number 0xEF53 at byte 1080";
    Case {
        mkfs2: &[what, "mke2fs -t ext2 DEV"],
        serve: Err(&[what, "mke2fs -t ext2 DEV", "--passive serves it as it is"]),
        chkfs2: (8, &[what, "mke2fs -t ext2 DEV"]),
    }
    .check(&scratch, &image);
    let before = file_digest(&image);
    // By one who asks for it, or where programs wait for a daemon that died.
    for asked in ["--passive", "--again"] {
        let served = Served::new(&scratch, &image, &[asked]);
        assert!(served.log().contains("is served as a plain device: not an ext2 volume"), "{}", served.log());
        served.stop().ended(0);
    }
    assert_eq!(file_digest(&image), before);
    fs::write(&image, "").unwrap();
    let (what, next) = ("DEV: it is empty (0 bytes), and no ext2 volume", "truncate -s SIZE DEV");
    Case { mkfs2: &[what, next], serve: Err(&[what, next]), chkfs2: (8, &[what, next]) }
        .check(&scratch, &image);
    assert_eq!(fs::metadata(&image).unwrap().len(), 0);
}

#[test]
fn neither_a_file_nor_a_block_device() {
    let Some((scratch, _)) = ready() else { return };
    for (path, what) in
        [("/dev/null", "is a character device"), (scratch.dir().to_str().unwrap(), "is a directory")]
    {
        let says = format!("{path} {what}, not a regular file or block device");
        scratch.run("mkfs2", [path]).ended(1).says(&says);
        scratch.run("fs2d", ["serve", path]).ended(2).says(&says);
        scratch.run("chkfs2", ["-n", path]).ended(8).says(&says);
    }
}

#[test]
fn no_table_yet() {
    let Some((scratch, image)) = ready() else { return };
    mke2fs(&image, 64 * MIB, &["-t", "ext2"]);
    let before = file_digest(&image);
    let refused = Served::start(&scratch, &image, &["--require-active"]).expect_err("it is refused");
    let remedy = format!("to activate it: mkfs2 {}", image.display());
    refused.ended(2).says("there is no replica table (inode 5 is empty)").says(&remedy);
    let served = Served::new(&scratch, &image, &[]);
    assert!(served.log().contains(&remedy), "{}", served.log());
    served.stop().ended(0);
    let remedy = format!("to make it an FS2 volume: mkfs2 {}", image.display());
    scratch.run("chkfs2", [Path::new("-n"), &image]).ended(4).says("inode 5 is empty").says(&remedy);
    scratch.run("mkfs2", [Path::new("--undo"), &image]).ended(1).says(&remedy);
    assert_eq!(file_digest(&image), before);
    // Done as told, it is active.
    scratch.run("mkfs2", [&image]).ended(0);
    Served::new(&scratch, &image, &["--require-active"]).stop().ended(0);
    scratch.run("mkfs2", [&image]).ended(1).says(&format!("to undo it: mkfs2 --undo {}", image.display()));
}

#[test]
fn not_cleanly_unmounted() {
    let Some((scratch, image)) = ready() else { return };
    mke2fs(&image, 64 * MIB, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    debugfs(&image, true, "ssv state 0");
    Case {
        mkfs2: &["DEV: the volume is not clean (mounted, or not unmounted in order)", "e2fsck -p"],
        serve: Ok(&["the file system was not cleanly unmounted", "to activate it: chkfs2 -f -p DEV"]),
        chkfs2: (4, &["the volume is not clean", "chkfs2 -p DEV"]),
    }
    .check(&scratch, &image);
    // Done as told, it is active.
    scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]).ended(1);
    Served::new(&scratch, &image, &["--require-active"]).stop().ended(0);
}

#[test]
fn written_by_a_tool_since() {
    let Some((scratch, image)) = ready() else { return };
    mke2fs(&image, 64 * MIB, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    debugfs(&image, true, "mkdir made-elsewhere");
    let before = file_digest(&image);
    let refused = Served::start(&scratch, &image, &["--require-active"]).expect_err("it is refused");
    let remedy = format!("to activate it: chkfs2 -f -p {}", image.display());
    refused.ended(2).says("the volume was changed outside FS2").says(&remedy);
    assert_eq!(file_digest(&image), before);
    scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]).ended(1);
    Served::new(&scratch, &image, &["--require-active"]).stop().ended(0);
}

#[test]
fn a_journal() {
    let Some((scratch, image)) = ready() else { return };
    mke2fs(&image, 64 * MIB, &["-t", "ext3"]);
    Case {
        mkfs2: &["DEV: unsupported: has_journal", "tune2fs -O ^has_journal DEV"],
        serve: Ok(&["unsupported: has_journal"]),
        chkfs2: (8, &["DEV: unsupported: has_journal", "tune2fs -O ^has_journal DEV"]),
    }
    .check(&scratch, &image);
}

#[test]
fn features_of_ext4() {
    let Some((scratch, image)) = ready() else { return };
    mke2fs(&image, 64 * MIB, &["-t", "ext4"]);
    let next = "FS2 takes volumes as mke2fs -t ext2 makes them";
    Case {
        mkfs2: &["extent", next],
        serve: Ok(&["unsupported: ", "extent"]),
        chkfs2: (8, &["extent", next]),
    }
    .check(&scratch, &image);
}

#[test]
fn a_feature_nobody_knows() {
    let Some((scratch, image)) = ready() else { return };
    mke2fs(&image, 64 * MIB, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let mut flags = [0; 4];
    let file = File::options().read(true).write(true).open(&image).unwrap();
    file.read_exact_at(&mut flags, 1024 + 96).unwrap();
    let flags = u32::from_le_bytes(flags) | 1 << 31;
    file.write_all_at(&flags.to_le_bytes(), 1024 + 96).unwrap();
    Case {
        mkfs2: &["DEV: unsupported: FEATURE_I31"],
        serve: Ok(&["unsupported: FEATURE_I31"]),
        chkfs2: (8, &["FEATURE_I31"]),
    }
    .check(&scratch, &image);
}

#[test]
fn a_truncated_image() {
    let Some((scratch, image)) = ready() else { return };
    mke2fs(&image, 64 * MIB, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    File::options().write(true).open(&image).unwrap().set_len(40 * MIB).unwrap();
    let what = "DEV: the volume needs 67108864 bytes but the device holds 41943040";
    Case { mkfs2: &[what, "restore the missing part"], serve: Err(&[what]), chkfs2: (8, &[what]) }
        .check(&scratch, &image);
}

/// Both headers of a table gone: what it held is lost, which costs nothing but time.
#[test]
fn a_damaged_table() {
    let Some((scratch, image)) = ready() else { return };
    mke2fs(&image, 64 * MIB, &["-t", "ext2", "-b", "4096"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let first: u64 = debugfs(&image, false, "bmap <5> 0").out.trim().parse().unwrap();
    let file = File::options().write(true).open(&image).unwrap();
    let blocks = dump(&image).blocks;
    assert!(first > 0 && first + 4 < blocks);
    let bytes = fs::metadata(&image).unwrap().len() - first * 4096;
    file.write_all_at(&Rng::new(4).bytes(4 * 4096_u64.min(bytes) as usize), first * 4096).unwrap();
    let before = file_digest(&image);
    let served = Served::new(&scratch, &image, &[]);
    let log = served.log();
    assert!(log.contains("the replica table cannot be used"), "{log}");
    let remedy = format!("to activate it: chkfs2 -f -p {}", image.display());
    assert!(log.contains(&remedy), "{log}");
    served.stop().ended(0);
    let refused = Served::start(&scratch, &image, &["--require-active"]).expect_err("it is refused");
    refused.ended(2).says("the replica table cannot be used").says(&remedy);
    scratch.run("chkfs2", [Path::new("-n"), &image]).ended(4).says("table");
    assert_eq!(file_digest(&image), before);
    // Nothing says any more that it was a table: it is overwritten by who was asked only.
    scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]).ended(4).says("chkfs2 -f -y ");
    scratch.run("mkfs2", [Path::new("--undo"), &image]).ended(1).says("chkfs2 -f -y ");
    // Done as told, it is active.
    scratch.run("chkfs2", [Path::new("-f"), Path::new("-y"), &image]).ended(1);
    Served::new(&scratch, &image, &["--require-active"]).stop().ended(0);
}

#[test]
fn no_space_for_the_table() {
    let Some((scratch, image)) = ready() else { return };
    let filler = scratch.path("filler");
    fs::write(&filler, Rng::new(5).bytes(5 << 20)).unwrap();
    mke2fs(&image, 4 * MIB, &["-t", "ext2", "-m", "0", "-N", "16"]);
    // It ends with "could not allocate", and what fitted is there; e2fsck makes it whole.
    debugfs(&image, true, &format!("write {} filler", filler.display()));
    fs2_tests::run(std::process::Command::new("e2fsck").arg("-fy").arg(&image));
    assert_eq!(dump(&image).free_blocks(), 0);
    let before = file_digest(&image);
    let refused = scratch.run("mkfs2", [&image]).ended(1).says("blocks but only 0 are free");
    refused.says("free some space, ask for less with --space, or put the table elsewhere with --table");
    assert_eq!(file_digest(&image), before);
    // The last of these works.
    let (table, bytes) = (scratch.path("table"), before);
    scratch.run("mkfs2", ["--table", table.to_str().unwrap(), image.to_str().unwrap()]).ended(0);
    Served::new(&scratch, &image, &["--require-active", "--table", table.to_str().unwrap()]).stop().ended(0);
    assert_eq!(file_digest(&image), bytes, "with the table elsewhere the volume is not written");
}

#[test]
fn served_by_another_daemon() {
    let Some((scratch, image)) = ready() else { return };
    mke2fs(&image, 64 * MIB, &["-t", "ext2"]);
    scratch.run("mkfs2", [&image]).ended(0);
    let served = Served::new(&scratch, &image, &[]);
    let says = format!("{} is in use by process {} (fs2d)", image.display(), served.pid());
    scratch.run("mkfs2", [&image]).ended(1).says(&says);
    scratch.run("mkfs2", [Path::new("--undo"), &image]).ended(1).says(&says);
    scratch.run("chkfs2", [Path::new("-p"), &image]).ended(8).says(&says);
    scratch.run("fs2d", ["serve", "--lock-wait", "0", image.to_str().unwrap()]).ended(2).says(&says);
    served.stop().ended(0);
    Served::new(&scratch, &image, &["--require-active"]).stop().ended(0);
}

/// mke2fs had wiped the volume by then.
#[test]
fn mkfs_refuses_before_it_makes_a_file_system() {
    let Some((scratch, image)) = ready() else { return };
    mke2fs(&image, 16 * MIB, &["-t", "ext2"]);
    fs::write(scratch.path("full"), [1; 4096]).unwrap();
    let before = file_digest(&image);
    let mkfs = |line: &str| {
        let mut mkfs = scratch.command("fs2");
        mkfs.arg0("mkfs.fs2").args(line.split(' ')).arg(&image).current_dir(scratch.dir());
        run(&mut mkfs)
    };
    for (line, says) in [
        ("-F -q --space 5.05%", "finer than 0.1%"),
        ("-F -q --space=0", "a share like 5%"),
        ("-F -q --table none/t", "none/t: making the table: No such file"),
        ("-F -q --table .", "a directory"),
        ("-F -q --table full", "full: not empty"),
        ("-F -q --table image", "is in use by"),
        ("-F -O has_journal", "with the feature has_journal"),
        ("-Fqj", "with a journal"),
    ] {
        let done = mkfs(line).ended(1).says(says);
        assert!(done.err.starts_with("mkfs.fs2: ") && done.err.lines().count() == 1, "{}", done.err);
        assert_eq!(file_digest(&image), before, "{line}");
    }
    mkfs("-F -q -O ^dir_index -b 1024 --table t").ended(0);
    assert!(scratch.path("t").exists() && file_digest(&image) != before);
}
