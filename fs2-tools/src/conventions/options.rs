//! Options after `-o`: FS2's own, by the names they have after `fs2 mount --`, those of every mount and of ext2, and those
//! that only mount(8) and service managers read.

use std::ffi::OsString;

use clap::{Args, Parser};

use crate::volume::cli::MountArgs;
use crate::volume::{MountRecord, another_superblock};

#[derive(Parser, Debug)]
#[command(name = "mount.fs2")]
struct Wrapped {
    #[command(flatten)]
    args: MountArgs,
}

/// What the kernel understands of every file system, and of ext2.
const KERNEL: &[&str] = &[
    "defaults",
    "ro",
    "rw",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "sync",
    "async",
    "dirsync",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "symfollow",
    "nosymfollow",
    "silent",
    "loud",
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "discard",
    "nodiscard",
    "acl",
    "noacl",
    "user_xattr",
    "nouser_xattr",
    "bsddf",
    "minixdf",
    "check",
    "nocheck",
    "debug",
    "errors",
    "grpid",
    "nogrpid",
    "bsdgroups",
    "sysvgroups",
    "quota",
    "noquota",
    "usrquota",
    "grpquota",
    "nouid32",
    "oldalloc",
    "orlov",
    "resgid",
    "resuid",
    "context",
    "fscontext",
    "defcontext",
    "rootcontext",
];

/// What is said to mount(8), fsck(8) or a service manager, and nothing to the kernel.
const OTHERS: &[&str] = &[
    "auto", "noauto", "user", "nouser", "users", "owner", "noowner", "group", "nogroup", "nofail", "_netdev",
    "comment", "helper", "uhelper",
];

/// Options of a mount, sorted by who reads them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sorted {
    /// As arguments of `fs2 mount`.
    ours: Vec<String>,
    /// For mount(2).
    pub(super) kernel: Vec<String>,
    /// A missing device is no error.
    pub(super) nofail: bool,
    /// It is mounted already, and gets other options.
    pub(super) remount: bool,
}

/// Sorts them; `sloppy` leaves out what is not known. Of FS2's own the last of each name counts, as the kernel's do: mount(8) gives
/// those of the line in fstab first.
///
/// # Errors
/// Which option is not known, and which are.
pub(super) fn sort(options: &[String], sloppy: bool) -> Result<Sorted, String> {
    let own = MountArgs::augment_args(clap::Command::new("mount.fs2"));
    let own: Vec<(&str, bool)> = own
        .get_arguments()
        .filter(|a| !a.is_hide_set())
        .filter_map(|a| Some((a.get_long()?, a.get_action().takes_values())))
        .filter(|(name, _)| *name != "json")
        .collect();
    let mut sorted = Sorted::default();
    for option in options.iter().flat_map(|o| split(o)) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.trim_matches('"'))),
            None => (option.as_str(), None),
        };
        let dashed = name.replace('_', "-");
        let known = |list: &[&str]| list.contains(&name);
        match value {
            _ if own.contains(&(&dashed, value.is_some())) => {
                let argument = match value {
                    // A comma would end the option, were it not quoted.
                    Some(marks) if dashed == "watermarks" => {
                        format!("--watermarks={}", marks.replace(':', ","))
                    }
                    Some(value) => format!("--{dashed}={value}"),
                    None => format!("--{dashed}"),
                };
                sorted.ours.retain(|earlier| argument_name(earlier) != argument_name(&argument));
                sorted.ours.push(argument);
            }
            None if name == "remount" => sorted.remount = true,
            _ if let Some(why) = another_superblock(&option) => return Err(why),
            _ if known(KERNEL) => sorted.kernel.push(option),
            _ if known(OTHERS) || name.starts_with("x-") || name.starts_with("X-") => {
                sorted.nofail |= name == "nofail";
            }
            _ if sloppy => {}
            _ => {
                let ours: Vec<String> = own
                    .iter()
                    .map(|(name, takes)| if *takes { format!("{name}=") } else { (*name).to_owned() })
                    .collect();
                return Err(format!(
                    "unknown option '{option}'; FS2's own are {}; the kernel's for ext2 are {}",
                    ours.join(", "),
                    KERNEL.join(", ")
                ));
            }
        }
    }
    Ok(sorted)
}

fn argument_name(argument: &str) -> &str {
    argument.split('=').next().unwrap_or_default()
}

/// At commas outside of double quotes.
pub(super) fn split(options: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut quoted = false;
    for c in options.chars() {
        quoted ^= c == '"';
        match (c, all.last_mut()) {
            (',', _) if !quoted => all.push(String::new()),
            (c, Some(last)) => last.push(c),
            _ => {}
        }
    }
    all.retain(|o| !o.is_empty());
    all
}

impl Sorted {
    /// The arguments of `fs2 mount` that say the same.
    ///
    /// # Errors
    /// Which value makes no sense.
    pub(super) fn args(&self, device: OsString, dir: OsString) -> Result<MountArgs, String> {
        let mut line: Vec<OsString> = vec!["mount.fs2".into()];
        line.extend(self.ours.iter().map(OsString::from));
        if !self.kernel.is_empty() {
            line.extend(["-o".into(), self.kernel.join(",").into()]);
        }
        line.extend(["--".into(), device, dir]);
        let parsed = Wrapped::try_parse_from(line).map_err(|e| e.to_string())?;
        Ok(parsed.args)
    }

    /// Those of FS2's own that are not as a volume was mounted with; `args` are these options. What concerns only the beginning of a
    /// session is not among them.
    pub(super) fn changed(&self, args: &MountArgs, record: &MountRecord) -> Vec<String> {
        let wanted: Vec<_> =
            args.settings.to_args().into_iter().filter_map(|a| a.into_string().ok()).collect();
        let mut now = record.again.clone();
        now.extend([format!("--frontend={}", record.frontend), "--frontend=auto".into()]);
        now.push(format!("--connections={}", record.connections));
        let changed = self.ours.iter().filter(|given| {
            let written = wanted.iter().find(|w| argument_name(w) == argument_name(given)).unwrap_or(given);
            !["--trace", "--record", "--require-active"].contains(&argument_name(given))
                && !now.contains(written)
        });
        changed.map(|option| option.trim_start_matches('-').to_owned()).collect()
    }

    /// Whether it is to be read-only; `None` where nothing is said of that. The last counts.
    pub(super) fn read_only(&self) -> Option<bool> {
        let all = self.kernel.iter().rev().find(|option| ["ro", "rw"].contains(&option.as_str()));
        all.map(|option| option == "ro")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::cli::FrontendArg;

    fn sorted(options: &str) -> Sorted {
        sort(&[options.to_owned()], false).unwrap()
    }

    #[test]
    fn everyone_gets_his_own() {
        let s =
            sorted("ro,noatime,policy=none,frontend=fuse,nofail,_netdev,x-systemd.x=1,discard,discard=pass");
        assert_eq!(s.kernel, ["ro", "noatime", "discard"]);
        assert_eq!(s.ours, ["--policy=none", "--frontend=fuse", "--discard=pass"]);
        assert!(s.nofail && !s.remount);
        let args = s.args("/dev/sdb1".into(), "/srv".into()).unwrap();
        assert_eq!(
            (args.frontend, args.options.as_slice()),
            (FrontendArg::Fuse, &["ro,noatime,discard".to_string()][..])
        );
        assert_eq!((args.device.to_str(), args.dir.to_str()), (Some("/dev/sdb1"), Some("/srv")));
    }

    /// Neither a line of fstab could be overridden nor the option of a remount be told from it.
    #[test]
    fn the_last_of_each_name_counts() {
        let s = sorted(
            "policy=fs2,lock-wait=1,require-active,policy=static,lock_wait=2,require_active,policy=none",
        );
        assert_eq!(s.ours, ["--lock-wait=2", "--require-active", "--policy=none"]);
        let settings = s.args("d".into(), "m".into()).unwrap().settings;
        assert_eq!((settings.policy.to_string(), settings.lock_wait), ("none".to_owned(), 2));
        let apart = ["policy=fs2,ro".to_owned(), "rw".to_owned(), "policy=none".to_owned()];
        let s = sort(&apart, false).unwrap();
        assert_eq!((s.ours, s.kernel), (vec!["--policy=none".to_owned()], vec!["ro".into(), "rw".into()]));
    }

    /// `mand` and `iversion`, which mount(8) has of every file system, were unknown.
    #[test]
    fn what_mount_8_has_of_every_file_system_is_known() {
        // Its man page, "Filesystem-independent mount options", but for what it keeps for itself.
        let all = "async,atime,noatime,auto,noauto,defaults,dev,nodev,diratime,nodiratime,dirsync,exec,noexec,group,iversion,\
            noiversion,mand,nomand,_netdev,nofail,relatime,norelatime,strictatime,nostrictatime,lazytime,nolazytime,suid,nosuid,\
            silent,loud,owner,ro,rw,sync,user,nouser,users,X-a,x-b,nosymfollow";
        assert!(!sorted(all).remount);
    }

    #[test]
    fn of_ro_and_rw_the_last_counts() {
        for (options, read_only) in
            [("noatime", None), ("ro,rw", Some(false)), ("rw,noatime,ro,sync", Some(true))]
        {
            assert_eq!(sorted(options).read_only(), read_only, "{options}");
        }
    }

    #[test]
    fn commas_in_values_and_names_with_either_dash() {
        let s =
            sorted(r#"watermarks="20,12,4",lock_wait=3,require-active,drive=wd800-repaired,time-scale=0.1"#);
        assert_eq!(s.ours[0], "--watermarks=20,12,4");
        let settings = s.args("d".into(), "m".into()).unwrap().settings;
        assert_eq!((settings.lock_wait, settings.require_active, settings.time_scale), (3, true, 0.1));
        assert_eq!(sorted("watermarks=20:12:4").ours, ["--watermarks=20,12,4"]);
    }

    /// The kernel clears the clean flag in the copy alone.
    #[test]
    fn another_superblock_is_refused_with_the_reason() {
        for (bad, sloppy) in [("noatime,sb=131072", false), ("sb=1", true), ("sb", false)] {
            let e = sort(&[bad.to_owned()], sloppy).unwrap_err();
            assert!(
                e.contains("'sb") && e.contains("a copy of the superblock") && e.contains("e2fsck -b"),
                "{e}"
            );
        }
    }

    #[test]
    fn what_nobody_knows_is_refused_with_what_is_known() {
        for bad in ["polcy=fs2", "policy", "require-active=1", "json", "again", "data=journal"] {
            let e = sort(&[bad.to_owned()], false).unwrap_err();
            assert!(e.contains(bad) && e.contains("policy=") && e.contains("noatime"), "{e}");
            assert_eq!(sort(&[bad.to_owned()], true), Ok(Sorted::default()));
        }
        let e = sorted("policy=best").args("d".into(), "m".into()).unwrap_err();
        assert!(e.contains("best"), "{e}");
    }
}
