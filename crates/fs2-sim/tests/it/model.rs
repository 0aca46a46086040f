//! Every scenario. The small ones are walked to their ends, of the large ones the first states (the program
//! `fs2-sim model` walks all of each).

use fs2_sim::model::explore::{Limits, explore};
use fs2_sim::model::scenarios;

/// States of a scenario at most, so that all of this takes well under a minute on two shared cores.
const STATES: usize = 8_000;

/// What a scenario that was cut off must have reached at least.
const DEPTH: usize = 6;

fn holds(name: &str) {
    let scenario = scenarios::by_name(name).expect("it is listed below because it is there");
    let found = explore(&scenario.start(&[]), &Limits { states: STATES, ..Limits::default() });
    println!(
        "{name}: {} states, {} steps, {} interleavings, depth {}{}",
        found.states,
        found.steps,
        found.interleavings,
        found.depth,
        if found.complete { "" } else { ", cut off" }
    );
    if let Some((v, path)) = found.violation {
        let steps: Vec<String> = path.iter().enumerate().map(|(i, s)| format!("{:3}  {s}", i + 1)).collect();
        panic!("{name}:\n{}\n => {v}", steps.join("\n"));
    }
    assert!(found.complete || found.depth >= DEPTH, "{name}: only to depth {}", found.depth);
}

macro_rules! scenarios {
    ($($test:ident $name:literal),+ $(,)?) => {
        $(#[test]
        fn $test() {
            holds($name);
        })+

        #[test]
        fn every_scenario_is_listed() {
            let listed = [$($name),+];
            let all: Vec<&str> = scenarios::all().iter().map(|s| s.name).collect();
            assert_eq!(listed[..], all[..]);
        }
    };
}

scenarios! {
    copy "copy",
    fetch "fetch",
    fetch_freed "fetch-freed",
    mapped "mapped",
    parts "parts",
    two "two",
    two_mapped "two-mapped",
    two_discards "two-discards",
    degree "degree",
    direct "direct",
    one_slot "one-slot",
    discard "discard",
    discard_original "discard-original",
    held_discard "held-discard",
    connections "connections",
    discard_pass "discard-pass",
    discard_pass_trusted "discard-pass-trusted",
    discard_pass_original "discard-pass-original",
    punch "punch",
    punch_trusted "punch-trusted",
    punch_window "punch-window",
    pins "pins",
    bitmap "bitmap",
    unloaded "unloaded",
    claim "claim",
    raw_reads "raw-reads",
    table "table",
    table_in_pieces "table-in-pieces",
    superblock "superblock",
    mark "mark",
    mark_copy "mark-copy",
    mark_apart "mark-apart",
    mark_in_pieces "mark-in-pieces",
    detach "detach",
    detach_apart "detach-apart",
    detach_in_pieces "detach-in-pieces",
    detach_errors "detach-errors",
    detach_busy "detach-busy",
    table_lost "table-lost",
    checked "checked",
    chkfs2_quick "chkfs2-quick",
    chkfs2_full "chkfs2-full",
    replica_lost "replica-lost",
    part_lost "part-lost",
    elsewhere "elsewhere",
    elsewhere_by_copy "elsewhere-by-copy",
    unverified "unverified",
    second_mount "second-mount",
    dirty "dirty",
    still_mounted "still-mounted",
    unfinished "unfinished",
    handed_over "handed-over",
    pending "pending",
    foreign "foreign",
    foreign_table "foreign-table",
    flush "flush",
    errors "errors",
    unreadable "unreadable",
    large_blocks "large-blocks",
    large_blocks_parts "large-blocks-parts",
    large_blocks_copy "large-blocks-copy",
    large_blocks_discard "large-blocks-discard",
    large_blocks_mark "large-blocks-mark",
    large_blocks_detach "large-blocks-detach",
    groups "groups",
    groups_unloaded "groups-unloaded",
    groups_border "groups-border",
    queues "queues",
    queues_discard "queues-discard",
    queues_bitmap "queues-bitmap",
    late_write "late-write",
    late_write_freed "late-write-freed",
    late_discard "late-discard",
    kill_queued "kill-queued",
    freeze "freeze",
    freeze_detach "freeze-detach",
    remount "remount",
    remount_dies "remount-dies",
    fsck_served "fsck-served",
    fsck_clean "fsck-clean",
    fsck_clears "fsck-clears",
    resize_grow "resize-grow",
    resize_shrink "resize-shrink",
    race_crash "race-crash",
    race_kill "race-kill",
    kill_in_detach "kill-in-detach",
    degree_crash "degree-crash",
    errors_crash "errors-crash",
}
