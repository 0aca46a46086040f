//! The papers' workloads on any mounted directory.

fn main() {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    std::process::exit(fs2_tools::fsbench::run(std::env::args_os(), &mut out, &mut err));
}
