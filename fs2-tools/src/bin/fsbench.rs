//! The papers' workloads on any mounted directory.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Mounting a volume starts this program again as its daemon.
    if let Some(code) = fs2_tools::fsbench::volumes::daemon(std::env::args_os()) {
        return code;
    }
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let code = fs2_tools::fsbench::run(std::env::args_os(), &mut out, &mut err);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
