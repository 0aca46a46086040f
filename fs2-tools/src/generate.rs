//! Man pages and completions of every program, from the definitions by which they read their arguments. For packages:
//! `fs2 generate man DIR`, `fs2 generate completions DIR`.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

/// What to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Man pages, section 8.
    Man,
    /// Completions for bash, zsh and fish, in a directory each.
    Completions,
}

/// Arguments of `fs2 generate`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What to generate.
    #[arg(value_enum)]
    pub what: Kind,
    /// Where to; made if missing.
    pub dir: PathBuf,
}

/// Generates it; `fs2` is that program's own definition.
///
/// # Errors
/// Where the files cannot be written.
pub fn run(options: &Options, fs2: Command) -> io::Result<()> {
    std::fs::create_dir_all(&options.dir)?;
    for mut program in programs(fs2) {
        match options.what {
            Kind::Man => {
                // Names of subcommands become those of their pages.
                program.build();
                pages(program, &options.dir)?;
            }
            Kind::Completions => {
                let name = program.get_name().to_owned();
                for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                    let dir = options.dir.join(shell.to_string());
                    std::fs::create_dir_all(&dir)?;
                    clap_complete::generate_to(shell, &mut program, &name, dir)?;
                }
            }
        }
    }
    Ok(())
}

fn programs(fs2: Command) -> [Command; 6] {
    [
        fs2,
        crate::mkfs2::command(),
        crate::chkfs2::command(),
        crate::replay::command(),
        crate::fsbench::command(),
        fs2d::cli::command(),
    ]
}

/// A page for the command and for each below it that is not hidden.
fn pages(command: Command, dir: &Path) -> io::Result<()> {
    let below: Vec<Command> =
        command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help").cloned().collect();
    clap_mangen::Man::new(command).section("8").generate_to(dir)?;
    below.into_iter().try_for_each(|c| pages(c, dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was broken into lines by hand was broken again, as wide as the terminal is: long and short lines in turns.
    #[test]
    fn paragraphs_below_the_options_are_wrapped_by_the_terminal_alone() {
        fn look(command: &Command) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
            for (line, next) in text.lines().zip(text.lines().skip(1)) {
                assert!(!(is_prose(line) && is_prose(next)), "{}: {line:?}, {next:?}", command.get_name());
            }
            command.get_subcommands().for_each(look);
        }
        let parts = [
            crate::volume::cli::MountArgs::augment_args(Command::new("mount")),
            crate::demo::Options::augment_args(Command::new("demo")),
            crate::top::Options::augment_args(Command::new("top")),
            crate::live_report::Options::augment_args(Command::new("report")),
            crate::calibrate::Args::augment_args(Command::new("calibrate")),
        ];
        programs(Command::new("fs2").subcommands(parts)).iter().for_each(look);
    }

    #[test]
    fn every_command_has_its_page_and_completions() {
        let fs2 = || {
            Command::new("fs2").subcommands([
                crate::volume::cli::MountArgs::augment_args(Command::new("mount")),
                Command::new("secret").hide(true),
            ])
        };
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        run(&Options { what: Kind::Man, dir: at("man") }, fs2()).unwrap();
        let page = std::fs::read_to_string(at("man/fs2-mount.8")).unwrap();
        for word in ["\\-\\-policy", "\\-\\-frontend", "EXIT CODES"] {
            assert!(page.contains(word), "{word} in {page}");
        }
        for name in [
            "fs2",
            "mkfs2",
            "mkfs2-replicate",
            "chkfs2",
            "fs2d",
            "fs2d-serve",
            "fs2-replay-run",
            "fsbench-run",
        ] {
            assert!(at(&format!("man/{name}.8")).is_file(), "{name}");
        }
        assert!(!at("man/fs2-secret.8").exists());
        run(&Options { what: Kind::Completions, dir: at("c") }, fs2()).unwrap();
        let bash = std::fs::read_to_string(at("c/bash/fs2.bash")).unwrap();
        assert!(
            bash.contains("--policy") && at("c/zsh/_chkfs2").is_file() && at("c/fish/fs2d.fish").is_file()
        );
    }
}
