//! Disk traces, drive models, and what a policy would have made of them.

use nix::sys::signal::{SigHandler, Signal, signal};

fn main() {
    // `fs2-replay ... | head` ends as other programs do there: Rust ignores this signal, and every print would fail.
    // SAFETY: no handler runs, and no other thread does yet.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    std::process::exit(fs2_tools::replay::run(std::env::args_os(), &mut out, &mut err));
}
