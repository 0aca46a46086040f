//! Runs docs/operating.md: every command of its `console` blocks, in one shell from the first to the last, and compares what each
//! says with the page.
//!
//! - A line that begins with `$ ` is a command for bash; `> ` continues it. What follows until the next is what it says, on either
//!   output, to the last line.
//! - `<name>` stands for any text within a line, and a line `...` for any lines or none. Runs of spaces count as one.
//! - `[exit N]` as the last line: it ends with N. Otherwise it ends with 0.
//!
//! Blocks without `console` are not run. The machine of the page is made of namespaces: `/dev/sdb1` is an image of 1 GiB, `/etc/fstab`, `/run`,
//! `/srv`, `/mnt`, `/tmp` and `/usr/sbin` are private, and the programs are where the package has them. With `FS2_PACKAGE=DIR`, an unpacked package
//! (`dpkg-deb -x`), they are the package's.

use std::path::Path;

use fs2_tests::{KERNEL, Need, PRIVATE, Scratch, loops_below, needs, privately};

/// A command of the page.
#[derive(Debug, Default)]
struct Step {
    /// Line of the page, from 1.
    line: usize,
    command: String,
    says: Vec<String>,
    code: i32,
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for (line, text) in (1..).zip(page.lines()) {
        match (inside, text) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, text) => {
                let last = steps.last_mut();
                if let Some(command) = text.strip_prefix("$ ") {
                    steps.push(Step { line, command: command.into(), ..Step::default() });
                } else if let (Some(more), Some(step)) = (text.strip_prefix("> "), last) {
                    step.command.push('\n');
                    step.command.push_str(more);
                } else {
                    let step =
                        steps.last_mut().unwrap_or_else(|| panic!("line {line}: output of no command"));
                    match text.strip_prefix("[exit ").and_then(|t| t.strip_suffix(']')) {
                        Some(code) => step.code = code.parse().expect("a number"),
                        None => step.says.push(text.into()),
                    }
                }
            }
            _ => {}
        }
    }
    assert!(!inside, "a block has no end");
    steps
}

/// Runs of spaces as one, none at the end.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a line is as the page has it.
fn line_fits(expected: &str, said: &str) -> bool {
    let Some((before, rest)) = expected.split_once('<') else { return expected == said };
    let Some((name, after)) = rest.split_once('>') else { return expected == said };
    if name.is_empty() || name.contains(' ') {
        return expected == said;
    }
    let Some(said) = said.strip_prefix(before) else { return false };
    // A placeholder stands for at least one character.
    (1..=said.len()).filter(|&n| said.is_char_boundary(n)).any(|n| line_fits(after, &said[n..]))
}

fn fits(expected: &[String], said: &[String]) -> bool {
    match expected.split_first() {
        None => said.is_empty(),
        Some((first, rest)) if first == "..." => (0..=said.len()).any(|n| fits(rest, &said[n..])),
        Some((first, rest)) => {
            said.split_first().is_some_and(|(s, more)| line_fits(first, s) && fits(rest, more))
        }
    }
}

/// A page's machine.
const MACHINE: &str = r#"
exec 8>&1
for dir in /srv /mnt; do mount -t tmpfs none $dir; done
mkdir /run/dev tmp; mount -t tmpfs -o mode=755 none /run/dev
cp -a /dev/{null,zero,full,random,urandom,tty,fuse,loop-control,fd,stdin,stdout,stderr} /run/dev/
for n in $(seq 0 255); do mknod "/run/dev/loop$n" b 7 "$n"; done
truncate -s 1G disk
device=$(losetup --show -f disk); trap 'losetup -d "$device"' EXIT
mknod /run/dev/sdb1 b 7 "${device#/dev/loop}"
mount --move /run/dev /dev
echo '# made up' > fstab; touch /etc/fstab; mount --bind fstab /etc/fstab
mount --bind tmp /tmp
trap - ERR; set +eEu +o pipefail
cd /
# Who types the next command does it when what was killed is gone.
kill() { builtin kill "$@"; while [ -e "/proc/${!#}" ]; do sleep 0.01; done; }
step() { eval "$2" > /run/said 2>&1 < /dev/null; local code=$?; { echo "@@ $1 $code"; cat /run/said; echo; } >&8; }
"#;

#[test]
fn the_page_says_what_happens() {
    let all = [KERNEL, PRIVATE, &[Need::Program("sha256sum"), Need::Program("pgrep")]].concat();
    if !needs(&all) {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operating.md");
    let steps = steps(&std::fs::read_to_string(page).expect("the page"));
    assert!(steps.len() > 20, "{} commands: the page was not understood", steps.len());
    let mut script = MACHINE.to_string();
    for (n, step) in steps.iter().enumerate() {
        // Quoted for bash: nothing is expanded before its turn.
        script.push_str(&format!("step {n} '{}'\n", step.command.replace('\'', r"'\''")));
    }
    let scratch = Scratch::new();
    let done = privately(&scratch, &script);
    println!("{}{}", done.out, done.err);
    let mut ran = 0;
    for part in done.out.split("@@ ").skip(1) {
        let (head, said) = part.split_once('\n').unwrap_or((part, ""));
        let mut head = head.split(' ').map(|n| n.parse::<i32>().expect("a number"));
        let (Some(n), Some(code)) = (head.next(), head.next()) else { panic!("{part}") };
        let step = &steps[n as usize];
        let said: Vec<String> = said.lines().map(words).filter(|l| !l.is_empty()).collect();
        let expected: Vec<String> = step.says.iter().map(|l| words(l)).filter(|l| !l.is_empty()).collect();
        assert!(
            fits(&expected, &said) && code == step.code,
            "docs/operating.md line {}: $ {}\nexpected, with exit code {}:\n{}\nit said, with exit code {code}:\n{}",
            step.line,
            step.command,
            step.code,
            expected.join("\n"),
            said.join("\n")
        );
        ran += 1;
    }
    assert_eq!(ran, steps.len(), "{}", done.err);
    assert_eq!(loops_below(scratch.dir()), Vec::<std::path::PathBuf>::new());
}

#[test]
fn placeholders_stand_for_what_they_may() {
    let lines = |text: &str| text.lines().map(words).collect::<Vec<_>>();
    for (expected, said, fit) in [
        ("a <n> b", "a  12 b", true),
        ("a <n> b", "a b", false),
        ("on /dev/loop<n> (<how>)", "on /dev/loop17 (by x)", true),
        ("x\n...\ny", "x\ny", true),
        ("x\n...\ny", "x\n1\n2\ny", true),
        ("x\n...", "y", false),
        ("1 < 2", "1 < 2", true),
        ("", "more", false),
        ("one", "", false),
    ] {
        assert_eq!(fits(&lines(expected), &lines(said)), fit, "{expected:?} {said:?}");
    }
    let page = "```\n$ not run\n```\n```console\n$ one\n> two\nsaid\n[exit 3]\n$ three\n```\n";
    let steps = steps(page);
    assert_eq!((steps.len(), steps[0].command.as_str(), steps[0].code), (2, "one\ntwo", 3));
    assert_eq!((steps[0].says.as_slice(), steps[1].line), (&["said".to_string()][..], 9));
}
