//! A small ext2 image with bytes changed: whatever it says, an answer and no panic.
#![no_main]

use fs2_ext2::{BlockMap, Inode, Layout, TableFile, lookup, read_dir};
use fs2_sim::model::image::{Shape, make};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut image = make(Shape::Plain, &[], &[]);
    // Triples: where (16 bits within the first 64 KiB, where all metadata is) and what.
    for change in data.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        image[at] = change[2];
    }
    let Ok(layout) = Layout::read(&mut image) else { return };
    let _ = layout.check_usable();
    let _ = TableFile::find(&layout, &mut image);
    for ino in 1..=16 {
        if let Ok(inode) = Inode::read(&layout, &mut image, ino) {
            let _ = BlockMap::read(&layout, &mut image, &inode);
            let _ = read_dir(&layout, &mut image, &inode);
        }
    }
    let _ = lookup(&layout, &mut image, "/lost+found/a/b");
    let config = fs2_engine::EngineConfig { paranoid: true, ..Default::default() };
    let _ = fs2_engine::Volume::attach(&mut image, None, config, &Default::default());
});
