//! A volume of 1 TiB costs little memory and few reads before it is served. One test, in a binary of its own:
//! the peak of its children's memory is the kernel's to tell, and is of all of them together.

use std::fs::File;
use std::path::Path;

use fs2_engine::{AttachOptions, EngineConfig, Volume};
use fs2_store::{FileStore, OpenOptions, StoreIo};
use fs2_tests::{Need, Scratch, Served, children_peak, dump, mke2fs, needs, peak_of};

const TIB: u64 = 1 << 40;

/// Bytes of memory a program may have at its peak: 256 MiB.
const MEMORY_MAX: u64 = 256 << 20;

#[test]
fn a_tebibyte() {
    if !needs(&[Need::Program("mke2fs"), Need::Program("dumpe2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    let sized = File::create(&image).and_then(|f| f.set_len(TIB));
    if let Err(e) = sized {
        panic!("{}: no sparse file of 1 TiB ({e}): set TMPDIR to another file system", image.display());
    }
    mke2fs(&image, TIB, &["-t", "ext2", "-T", "largefile4"]);
    println!("mke2fs: {} MiB", children_peak() >> 20);
    let made = scratch.run("mkfs2", [Path::new("--json"), &image]).ended(0).json();
    println!("mkfs2 and mke2fs: {} MiB; {made}", children_peak() >> 20);
    assert!(children_peak() < MEMORY_MAX, "mkfs2 (or mke2fs) took {} MiB", children_peak() >> 20);
    let table_bytes = made["table_bytes"].as_u64().unwrap();
    // 0.02 % of the volume.
    assert!((TIB / 10_000..TIB / 4_000).contains(&table_bytes), "{made}");

    let mut reads = None;
    for policy in ["none", "fs2"] {
        let served = Served::new(&scratch, &image, &["--require-active", "--policy", policy]);
        let peak = peak_of(served.pid());
        println!("fs2d with policy {policy}: {} MiB", peak >> 20);
        assert!(peak < MEMORY_MAX, "fs2d took {} MiB", peak >> 20);
        served.stop().ended(0);
    }
    {
        let store = FileStore::open(&image, OpenOptions::default()).unwrap();
        let mut io = StoreIo::new(&store);
        let (volume, _) =
            Volume::attach(&mut io, None, EngineConfig::default(), &AttachOptions::default()).unwrap();
        assert!(matches!(volume.standing(), fs2_engine::Standing::Active), "{:?}", volume.standing());
        reads.replace(io.reads());
    }
    // Of the table's pages none: its mark says that they are zero.
    println!("{reads:?} reads before serving");
    assert!(reads <= Some(128), "{reads:?}");
    assert_eq!(dump(&image).blocks, TIB / 4096);
}
