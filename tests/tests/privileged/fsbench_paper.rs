//! `fsbench paper`, `sweep` and `compare` on volumes of their own, at sizes that say nothing of the drive but
//! everything of the way: made, prepared, copied, served, run cold, compared, checked, removed.

use std::path::Path;

use fs2_tests::{
    KERNEL, Mounted, Need, PRIVATE, PlainMount, Scratch, loops_below, mke2fs, mounts_below, needs, privately,
};
use fs2_tools::fsbench::measure::Document;

fn assert_nothing_left(scratch: &Scratch, work: &Path) {
    assert_eq!((mounts_below(scratch.dir()), loops_below(scratch.dir())), (vec![], vec![]));
    assert_eq!(std::fs::read_dir(work).unwrap().count(), 0, "images are left");
}

/// Hours later it was "writing back: Input/output error".
#[test]
fn images_that_find_no_room_are_refused_before_the_first() {
    if !needs(KERNEL) || !needs(PRIVATE) {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
        mkdir work; mount -t tmpfs -o size=8M none work
        cat > plan.toml <<END
size = '512m'
systems = ['ext2']
drives = ['wd800-repaired']
[[workload]]
name = 'cvs-update'
END
        for how in "paper --workload cvs --size 512m" "sweep plan.toml --out out"; do
            code=0; /run/binaries/fsbench $how --work-dir work 2> said || code=$?
            cat said; [ $code = 1 ]; grep -q "^fsbench: work: .* free, about .* needed for images; name another directory by --work-dir" said
            [ -z "$(ls work)" ]; not [ -e out ]
        done
    "#;
    let done = privately(&scratch, script);
    println!("{}{}", done.out, done.err);
    done.ended(0);
}

#[test]
fn the_paper_s_table_of_a_small_cvs_update() {
    if !needs(KERNEL) || !needs(&[Need::Program("debugfs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (work, json, html) = (scratch.make_dir("work"), scratch.path("p.json"), scratch.path("p.html"));
    let args =
        "paper --workload cvs --runs 2 --time-scale 0.05 --scale 0.03 --size 512m --idle 3s --mem-limit none";
    let mut args: Vec<String> = args.split(' ').map(String::from).collect();
    for (name, path) in [("--work-dir", &work), ("--json", &json), ("--html", &html)] {
        args.extend([name.to_owned(), path.display().to_string()]);
    }
    let mut done = scratch.run("fsbench", &args).ended(0);
    for part in ["Table 3: CVS update, run 2", "the paper", "run 1 of fs2:", "static", "fs2-2005"] {
        done = done.says(part);
    }
    let all: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let systems = all["workloads"][0]["systems"].as_array().unwrap();
    let names: Vec<&str> = systems.iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, ["ext2", "static", "fs2-2005", "fs2"]);
    for (system, name) in systems.iter().zip(&names) {
        let document = Document::from_json(&system["document"].to_string()).unwrap();
        assert_eq!(document.measured().count(), 2);
        for run in document.measured() {
            let drive = run.drive.as_ref().expect("it lies on FS2");
            // Cold: the drive was read in every run, and the proof says that nothing was cached.
            assert!(drive.accesses > 0 && drive.t_a_ms > Some(0.0), "{name}: {drive:?}");
            assert_eq!(run.cold.expect("it was made cold").residency.cached, 0);
            let joules = |source: &str| {
                run.energy.iter().find(|e| e.source == source).and_then(|e| e.joules).expect("joules")
            };
            let rest = run.rest.as_ref().expect("it was asked for after the rest");
            let of_rest = joules("disk model and rest") - joules("disk model");
            assert!(
                joules("disk model") > 0.0 && (of_rest - rest.access_j.unwrap()).abs() < 1e-6,
                "{rest:?}"
            );
        }
        // FS2 copies when the run is over, or within it where the machine is so busy that the disk had rests.
        let in_runs = document.measured().filter_map(|r| r.drive.as_ref()).map(|d| d.copies_written);
        let in_rests = document.measured().filter_map(|r| r.rest.as_ref()).map(|d| d.copies_written);
        let copied: u64 = in_runs.chain(in_rests).sum();
        assert_eq!(copied > 0, name.starts_with("fs2"), "{name}: {copied} copies");
        let replicas: u64 =
            document.measured().filter_map(|r| r.drive.as_ref()).map(|d| d.reads_from_replica).sum();
        match *name {
            "ext2" => assert_eq!(replicas, 0),
            "static" => assert!(replicas > 0, "copies made by hand are read"),
            _ => {}
        }
    }
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("figures 9 and 12") && page.contains("<svg"), "the page has its pictures");
    assert_nothing_left(&scratch, &work);
}

#[test]
fn a_sweep_goes_on_where_it_was() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (work, out, plan) = (scratch.make_dir("work"), scratch.path("out"), scratch.path("plan.toml"));
    let text = "size = '128m'\nruns = 2\nscale = 0.02\ntime_scale = 0.02\ndrives = ['wd800-repaired']\n\
                systems = ['ext2', 'fs2']\nvariants = ['def', 'blk1k']\n[[workload]]\nname = 'cvs-update'\n";
    std::fs::write(&plan, text).unwrap();
    let sweep = |more: &[&str]| {
        let args = [
            "sweep",
            plan.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
            "--work-dir",
            work.to_str().unwrap(),
        ];
        scratch.run("fsbench", args.iter().chain(more)).ended(0)
    };
    assert_eq!(sweep(&["--dry-run"]).out.matches("to do").count(), 4);
    let first = sweep(&[]).says("fs2 blk1k").says("Recommended").says("Perf.");
    assert_eq!(first.err.matches("cvs-update\n").count(), 4, "{}", first.err);
    assert_eq!(sweep(&["--dry-run"]).out.matches("done").count(), 4);
    // One result is lost: one cell is run again, and the tables come out of the files.
    let lost = std::fs::read_dir(&out).unwrap().flatten().next().unwrap().path();
    std::fs::remove_file(lost).unwrap();
    let second = sweep(&[]);
    assert_eq!(second.err.matches("cvs-update\n").count(), 1, "{}", second.err);
    let third = sweep(&[]);
    assert_eq!(third.err, "");
    // e2fsck says its line before the tables where a cell is run.
    assert!(second.out.ends_with(&third.out), "{}{}", second.out, third.out);
    assert_nothing_left(&scratch, &work);
}

#[test]
fn plain_ext2_and_fs2_are_compared_in_turns() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let (plain_image, image) = (scratch.path("plain.img"), scratch.path("fs2.img"));
    for image in [&plain_image, &image] {
        mke2fs(image, 128 << 20, &["-t", "ext2"]);
    }
    scratch.run("mkfs2", [&image]).ended(0);
    let plain = PlainMount::new(&plain_image, &scratch.path("a"), "rw");
    // A modelled drive on one side only: the difference is in the drive, and large.
    let args = ["--drive", "wd800-repaired", "--time-scale", "0.2", "--require-active"];
    let mounted = Mounted::new(&scratch, &image, &scratch.path("b"), &args);
    let json = scratch.path("c.json");
    let args = [
        "compare",
        "cvs-update",
        "--scale",
        "0.02",
        "--runs",
        "4",
        "--cold",
        "remount",
        "--quiet-warnings",
        "--json",
    ];
    let paths = [&json, plain.dir(), mounted.dir()].map(|p: &Path| p.to_str().unwrap().to_owned());
    let all: Vec<String> = args.iter().map(ToString::to_string).chain(paths).collect();
    let done = scratch.run("fsbench", &all).ended(0);
    done.says("B to A").says("FS2 policy fs2");
    let all: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let (a, b) = (&all["a"], &all["b"]);
    let starts = |d: &serde_json::Value| -> Vec<f64> {
        d["runs"].as_array().unwrap().iter().map(|r| r["started_unix_s"].as_f64().unwrap()).collect()
    };
    let (a, b) = (starts(a), starts(b));
    assert_eq!((a.len(), b.len()), (4, 4));
    // Who begins changes with each turn, and no turn begins before the last one is over.
    for (turn, (a, b)) in a.iter().zip(&b).enumerate() {
        assert_eq!(a < b, turn % 2 == 0, "turn {turn}");
    }
    assert!((1..4).all(|i| a[i].min(b[i]) > a[i - 1].max(b[i - 1])));
    assert!(all["compared"]["ops_per_s"]["p"].is_number());
    for dir in [plain.dir(), mounted.dir()] {
        let left: Vec<_> = std::fs::read_dir(dir).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["lost+found"], "its files are removed");
    }
    mounted.umount().ended(0);
}
