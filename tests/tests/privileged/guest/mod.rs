//! In a guest with a kernel of its own (`tests/guest/run`): what the host's kernel lacks. All cases are one program: those that
//! wait for minutes run beside the others.

mod growth;
mod nbd;
mod ublk;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use fs2_tests::{Guest, Need, needs};

fn ready() -> bool {
    needs(&[Need::Root, Need::Guest])
}

#[test]
fn the_guest_boots_with_its_modules_and_the_machines_programs() {
    if !ready() {
        return;
    }
    let left = Guest::new(&["nbd", "ublk_drv"]).run(
        r#"
        uname -r
        cut -d' ' -f1 /proc/modules | sort | tr '\n' ' '
        [ -b /dev/vda ]; [ -b /dev/nbd0 ]; [ -c /dev/ublk-control ]
        fs2 --version; mke2fs -q -t ext2 /dev/vda; e2fsck -fn /dev/vda > /dev/null
        mkdir /tmp/m; mount -t ext2 -o discard /dev/vda /tmp/m; touch /tmp/m/x; umount /tmp/m
        echo out > result
        "#,
    );
    println!("{}", left.log());
    left.says("6.12.").says(" nbd ").says(" ublk_drv ").says("fs2 0.");
    assert_eq!(std::fs::read_to_string(left.path("result")).unwrap(), "out\n");
}

/// What plays qemu writes to the console, and ends: twice before the case, then with the case done.
#[test]
fn a_kernel_that_dies_before_the_case_boots_again() {
    if !ready() {
        return;
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let boots = |deaths: usize| {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let share = at("share");
        fs::create_dir(&share).unwrap();
        fs::write(share.join("case"), "#!/bin/sh\n").unwrap();
        let script = format!(
            "#!/bin/bash\nshare={}\necho boot >> $share/boots\necho 'Kernel panic - not syncing' > $share/console\n\
             if [ \"$(wc -l < $share/boots)\" -gt {deaths} ]; then touch $share/log; echo 0 > $share/exit; fi\n",
            share.display()
        );
        fs::write(at("qemu-system-x86_64"), script).unwrap();
        fs::set_permissions(at("qemu-system-x86_64"), fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
        let cache = std::env::var_os("FS2_GUEST_DIR").map_or(tests.join("../target/guest"), Into::into);
        let mut run = Command::new(tests.join("guest/run"));
        run.env("PATH", path).env("FS2_GUEST_DIR", cache).arg("--bin").arg(dir.path()).arg(&share);
        let done = run.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), fs::read_to_string(share.join("boots")).unwrap().lines().count(), said)
    };
    let (code, times, said) = boots(2);
    assert_eq!((code, times), (Some(0), 3), "{said}");
    assert!(said.contains("died before the case began (boot 2): Kernel panic"), "{said}");
    let (code, times, said) = boots(5);
    assert_eq!((code, times), (Some(124), 3), "{said}");
}

#[test]
fn a_case_that_fails_hangs_or_panics_is_a_failure() {
    if !ready() {
        return;
    }
    let fails = |seconds: u64, script: &'static str| -> String {
        let run = move || drop(Guest::new(&[]).seconds(seconds).run(script));
        let panic = std::panic::catch_unwind(run).expect_err("the case must fail");
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let said = fails(120, "echo before\nfalse\necho after");
    assert!(said.contains("before") && said.contains("\"false\" ended with 1"), "{said}");
    assert!(!said.contains("after"), "{said}");
    let said = fails(120, "echo before; sync; echo c > /proc/sysrq-trigger; sleep 60");
    assert!(said.contains("hung or its kernel panicked") && said.contains("sysrq"), "{said}");
    let said = fails(10, "sleep 600");
    assert!(said.contains("hung or its kernel panicked") && said.contains("within 10 s"), "{said}");
}
