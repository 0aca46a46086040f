//! An ext2 volume becomes an FS2 volume, and an ext2 volume again.

fn main() {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    std::process::exit(fs2_tools::mkfs2::run(std::env::args_os(), &mut out, &mut err));
}
