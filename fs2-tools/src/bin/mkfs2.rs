//! An ext2 volume becomes an FS2 volume, and an ext2 volume again.

fn main() {
    let (mut out, mut err) = (fs2_tools::output::Words::new(), fs2_tools::output::Complaints::new());
    std::process::exit(fs2_tools::mkfs2::run(std::env::args_os(), &mut out, &mut err));
}
