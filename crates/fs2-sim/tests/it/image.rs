//! The model's volume is ext2: e2fsck finds nothing in it, before and after it has a table.

use std::process::Command;

use fs2_sim::glue::Setup;
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::Shape;
use fs2_sim::model::world::World;

/// Removes the image also where the test fails.
struct Image(std::path::PathBuf);

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn e2fsck_finds_nothing() {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let fsck = || {
        let mut c = Command::new("e2fsck");
        c.env("PATH", &path);
        c
    };
    if fsck().arg("-V").output().is_err() {
        println!("skipped: e2fsck not found");
        return;
    }
    for (shape, grain) in [
        (Shape::Plain, Grain::SMALL),
        (Shape::Fragmented, Grain::SMALL),
        (Shape::Groups, Grain::SMALL),
        (Shape::Plain, Grain::LARGE),
        (Shape::Groups, Grain::LARGE),
    ] {
        let world = World::new(Setup { shape, grain, ..Setup::default() });
        for (what, bytes) in [("bare", world.bare().bytes()), ("converted", world.devices()[0].bytes())] {
            let file = std::env::temp_dir().join(format!(
                "fs2-sim-{}-{shape:?}-{}-{what}",
                std::process::id(),
                grain.block()
            ));
            let image = Image(file);
            std::fs::write(&image.0, bytes).unwrap();
            let out = fsck().arg("-fn").arg(&image.0).output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            assert_eq!(out.status.code(), Some(0), "{shape:?} {grain:?}, {what}: {said}");
        }
    }
}
