//! Checks an FS2 volume: e2fsck first, then the replica table.

fn main() {
    let (mut out, mut err) = (fs2_tools::output::Words::new(), fs2_tools::output::Complaints::new());
    std::process::exit(fs2_tools::chkfs2::run(std::env::args_os(), &mut out, &mut err));
}
