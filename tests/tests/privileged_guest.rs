//! In a guest with a kernel of its own (`tests/guest/run`): what the host's kernel lacks.

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
        [ -b /dev/vda ] && [ -b /dev/nbd0 ] && [ -c /dev/ublk-control ]
        fs2 --version && mke2fs -q -t ext2 /dev/vda && e2fsck -fn /dev/vda > /dev/null
        mkdir /tmp/m && mount -t ext2 -o discard /dev/vda /tmp/m && touch /tmp/m/x && umount /tmp/m
        echo out > result
        "#,
    );
    println!("{}", left.log());
    left.says("6.12.").says(" nbd ").says(" ublk_drv ").says("fs2 0.");
    assert_eq!(std::fs::read_to_string(left.path("result")).unwrap(), "out\n");
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
