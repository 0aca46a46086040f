//! Disk traces, drive models, and what a policy would have made of them.

fn main() {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    std::process::exit(fs2_tools::replay::run(std::env::args_os(), &mut out, &mut err));
}
