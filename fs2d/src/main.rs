//! `fs2d serve DEVICE`: see `fs2d --help`.

fn main() -> std::process::ExitCode {
    fs2d::cli::main_with(std::env::args_os())
}
