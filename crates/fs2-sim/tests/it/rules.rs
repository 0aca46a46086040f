//! "Rule removed → shortest counterexample": each of these interleavings with the rule in force.

use fs2_engine::Standing;
use fs2_sim::model::world::{Action, From, O, R, T, X};

use crate::play::{BG, Play, READ, READ_COPY, READ_X};

/// R0: the lock is free only when the last I/O of the dead daemon has ended.
#[test]
fn r0_an_attach_waits_for_pending_io() {
    let mut p = Play::at("pending");
    p.act(&[Action::Write(O)]);
    p.lands("the daemon's write of header slot 1")
        .lands("the client's flush")
        .flies("the client's write of O");
    p.act(&[Action::Kill]).flies("a dead client's write of O");
    assert!(!p.0.is_enabled(Action::Attach) && !p.0.is_enabled(Action::Check));
    p.lands("a dead client's write of O").act(&[Action::Check, Action::Attach]);
    p.reads_o();
}

/// R0: the same with a copy in the device.
#[test]
fn r0_a_copy_of_a_dead_daemon_lands_before_the_attach() {
    let mut p = Play::at("pending");
    p.act(&[Action::Evict(R), READ_X]).rest().act(&[BG]).rest().act(&[BG]);
    p.flies("the daemon's write of R").act(&[Action::Kill]);
    assert!(!p.0.is_enabled(Action::Attach));
    p.lands("a dead daemon's write of R").act(&[Action::Attach, Action::Alloc(R), Action::Write(R)]).rest();
    p.act(&[Action::Read(R, From::Original)]).rest();
}

/// R0 clean: detached under a mount; R is used by the kernel and free in the bitmap on disk.
#[test]
fn r0_a_dirty_volume_is_not_trusted() {
    let mut p = Play::at("still-mounted");
    p.act(&[Action::Alloc(R), Action::Write(R)]).rest().act(&[Action::Detach]).rest().act(&[Action::Attach]);
    assert!(matches!(p.0.volume().unwrap().standing(), Standing::Inactive(_)));
    p.act(&[Action::Target(R)]).no_copy_to_r();
}

/// R0 mark: the volume is clean, the table's pages are verified, but the session did not end in order.
#[test]
fn r0_no_mark_no_trust() {
    let mut p = Play::at("mark");
    p.act(&[Action::Write(O)]).rest().act(&[Action::Kill, Action::Attach]);
    assert!(!p.reads_o());
}

/// R0 token: written elsewhere between two sessions.
#[test]
fn r0_another_token_no_trust() {
    let mut p = Play::at("elsewhere");
    p.act(&[Action::Detach]).rest().act(&[Action::ElsewhereWrites(O), Action::Attach]);
    assert!(!p.reads_o());
}

/// R0 token: the same by a copy of the superblock, which the primary one does not tell.
#[test]
fn r0_another_copy_of_the_superblock_no_trust() {
    let mut p = Play::at("elsewhere-by-copy");
    p.act(&[Action::Detach]).rest().act(&[Action::ElsewhereByCopy(O), Action::Attach]);
    assert!(!p.reads_o());
}

/// R1: a written block leaves F.
#[test]
fn r1_a_written_block_is_not_copied_into() {
    let mut p = Play::at("copy");
    p.act(&[Action::Alloc(R), Action::Write(R)]).rest().no_copy_to_r();
}

/// R1: and its replicas go.
#[test]
fn r1_a_written_original_has_no_replica() {
    let mut p = Play::at("mapped");
    p.act(&[Action::WritePart(O, 1)]).mapped(R, false).rest();
    assert!(!p.reads_o());
}

/// R1: and what replica was in it.
#[test]
fn r1_a_written_replica_is_one_no_more() {
    let mut p = Play::at("mapped");
    p.act(&[Action::Alloc(R), Action::WritePart(R, 0)]).mapped(R, false).rest();
    assert!(!p.reads_o());
}

/// R2: a block joins F before the discard is answered, so that a write after the answer takes it out.
#[test]
fn r2_a_discard_frees_before_its_answer() {
    let mut p = Play::at("discard");
    p.act(&[Action::Discard(R)]).unanswered(0);
    p.act(&[Action::Alloc(R), Action::Write(R)]).rest().no_copy_to_r();
}

/// R2: a discard that is passed down frees when it has ended below.
#[test]
fn r2_a_passed_discard_frees_at_its_end() {
    let mut p = Play::at("discard-pass");
    p.act(&[Action::Evict(R), Action::Discard(R), READ]).lands("the client's read of O");
    p.act(&[BG]).waits("the daemon's write of R").lands("a discard of R");
    p.act(&[BG]).rest().act(&[READ_COPY]).rest();
}

/// "Only a discard": a bitmap in flight is older than the block's use, and its 0 frees nothing.
#[test]
fn only_a_discard_frees() {
    let mut p = Play::at("bitmap");
    p.act(&[Action::SendBitmap, Action::Alloc(R), Action::Write(R)]).rest();
    p.act(&[Action::BitmapArrives]).rest().no_copy_to_r();
}

/// R3: a tool marks R used and does not write it.
#[test]
fn r3_a_claimed_block_is_not_copied_into() {
    let mut p = Play::at("claim");
    p.act(&[Action::Claim(R)]).mapped(R, false).rest().act(&[READ_X]).rest().act(&[BG]);
    p.waits("the daemon's write of R").rest();
}

/// R4: mounted again without an unmount; what the new kernel believes to be in use nobody knows.
#[test]
fn r4_a_second_mount_freezes() {
    let mut p = Play::at("second-mount");
    p.act(&[Action::Alloc(R), Action::WriteRefs]).rest().act(&[Action::KernelDies, Action::Mount]).rest();
    assert!(matches!(p.0.volume().unwrap().standing(), Standing::Frozen(_)));
    p.no_copy_to_r();
}

/// R4: and it is answered after copies in flight, which may land in a block that is in use from now on.
#[test]
fn r4_a_second_mount_waits_for_the_copy() {
    let mut p = Play::at("second-mount");
    p.act(&[Action::Alloc(R), Action::WriteRefs, READ]).rest();
    p.act(&[BG]).flies("the daemon's write of R").act(&[Action::KernelDies, Action::Mount]);
    p.lands("the client's write of the superblock").unanswered(1);
    p.lands("the daemon's write of R").unanswered(0).mapped(R, false);
}

/// R5: a read does not pass a write in flight, so that its payload is no older than what the write leaves.
#[test]
fn r5_a_read_waits_for_the_write() {
    let mut p = Play::at("copy");
    p.act(&[Action::Write(O), READ]).waits("the client's read of O").rest().act(&[BG]).rest().mapped(R, true);
    assert!(p.reads_o());
}

/// R5: O is written while its copy is on the way.
#[test]
fn r5_a_copy_of_old_data_is_not_published() {
    let mut p = Play::at("copy");
    p.act(&[READ]).rest().act(&[BG]).flies("the daemon's write of R").act(&[Action::Write(O)]).rest();
    p.mapped(R, false);
    assert!(!p.reads_o());
}

/// R5: R was taken since the policy chose it.
#[test]
fn r5_f_is_looked_at_again() {
    let mut p = Play::at("copy");
    p.act(&[READ]).rest().act(&[Action::Alloc(R), Action::Write(R), BG]);
    p.waits("the daemon's write of R").rest().mapped(R, false);
}

/// R5: R is taken while the copy is on the way: the write waits, then wins.
#[test]
fn r5_a_write_of_the_target_waits_for_the_copy() {
    let mut p = Play::at("copy");
    p.act(&[READ]).rest().act(&[BG, Action::Alloc(R), Action::Write(R)]).waits("the client's write of R");
    p.lands("the daemon's write of R").mapped(R, false).lands("the client's write of R");
    p.act(&[Action::Read(R, From::Original)]).rest();
}

/// R6: a replica being read is pinned.
#[test]
fn r6_a_write_waits_for_the_read_of_the_replica() {
    let mut p = Play::at("pins");
    p.act(&[READ_COPY]).flies("the client's read of R");
    p.act(&[Action::Alloc(R), Action::Write(R)]).waits("the client's write of R").rest();
}

/// R6: also against a new copy.
#[test]
fn r6_a_new_copy_waits_for_the_read_of_the_old() {
    let mut p = Play::at("pins");
    p.act(&[READ_COPY, Action::Evict(R), READ_X]).lands("the client's read of X");
    // Both blocks that were read are written together.
    p.act(&[BG]).waits("the daemon's write of R and S").rest();
    p.act(&[BG]).flies("the daemon's write of R and S").rest();
}

/// R7: no table write once a client took a block of the table.
#[test]
fn r7_a_lost_table_is_not_written() {
    let mut p = Play::at("table");
    p.act(&[Action::Write(T)]).rest().act(&[BG, BG, BG]).idle();
}

/// R7: a client's write waits for a table write in flight.
#[test]
fn r7_a_client_waits_for_the_page() {
    let mut p = Play::at("table");
    p.act(&[BG]).rest().act(&[BG]).flies("the daemon's write of T");
    p.act(&[Action::Write(T)]).waits("the client's write of T").lands("the daemon's write of T");
    p.lands("the client's write of T");
}

/// R7: decided is not dispatched: a page in pieces, the client comes between two.
#[test]
fn r7_a_page_in_pieces_is_looked_at_before_each() {
    let mut p = Play::at("table-in-pieces");
    let mut pieces = 0;
    for _ in 0..4 {
        p.act(&[BG]);
        if p.0.queue_in_words() == ["the daemon's write of T"] {
            // The other three wait for the device's one slot.
            p.act(&[Action::Write(T)]).lands("the daemon's write of T").rest();
            pieces += 1;
            break;
        }
        p.rest();
    }
    assert_eq!(pieces, 1, "a page was written");
    p.act(&[BG]).idle();
}

/// R8: a block that holds a replica, by a table that is older than its use, reads as it is.
#[test]
fn r8_nothing_is_masked() {
    let mut p = Play::at("elsewhere");
    p.act(&[Action::Kill, Action::ElsewhereWrites(R), Action::Check, Action::Attach]).mapped(R, true);
    p.act(&[Action::Read(R, From::Original)]).flies("the client's read of R").rest();
}

/// Mark: erased before the first change, and that flushed.
#[test]
fn the_mark_is_erased_and_flushed_first() {
    let mut p = Play::at("mark");
    p.act(&[Action::Write(O)]).waits("the client's write of O");
    p.lands("the daemon's write of header slot 1").waits("the client's write of O");
    p.lands("the client's flush")
        .lands("the client's write of O")
        .act(&[Action::PowerLoss(1), Action::Attach]);
    assert!(!p.reads_o());
}

/// Mark: written after a flush of its own, behind that of the pages.
#[test]
fn the_mark_has_its_own_flush() {
    let mut p = Play::at("detach");
    p.act(&[Action::Write(O)]).rest().act(&[READ]).rest().act(&[BG]).rest().act(&[BG]).rest();
    p.act(&[Action::Detach]).rest();
    // Everything in order; now the same, cut off when the mark could be written.
    let mut p = Play::at("detach");
    p.act(&[Action::Write(O), READ]).rest().act(&[BG]).rest().mapped(R, true).act(&[Action::Detach]);
    while !p.0.queue_in_words().iter().any(|q| q == "the client's flush") {
        p.waits("the daemon's write of header slot 1").waits("the daemon's write of checksums");
        p.act(&[Action::Land(0)]);
    }
    p.waits("the daemon's write of checksums").lands("the client's flush");
    p.flies("the daemon's write of checksums").act(&[Action::PowerLoss(0), Action::Attach]);
    assert!(!p.reads_o());
}

/// Flag per page: killed, checked, attached, ended in order: what was not verified stays so.
#[test]
fn a_clean_end_does_not_launder() {
    let mut p = Play::at("checked");
    p.act(&[Action::Write(O)])
        .rest()
        .act(&[Action::Kill, Action::Check, Action::Attach, Action::Write(X)])
        .rest();
    p.act(&[Action::Detach]).rest().act(&[Action::Attach]).mapped(R, true);
    assert!(!p.reads_o());
}

/// Unverified entries are not read.
#[test]
fn an_unverified_entry_is_not_read() {
    let mut p = Play::at("unverified");
    p.mapped(R, true).act(&[READ_COPY]).flies("the client's read of O").rest();
    // That read verified it.
    p.act(&[READ_COPY]).flies("the client's read of R").rest();
}

/// Mark only if F was valid: a dirty volume, mounted and unmounted without a check.
#[test]
fn no_mark_without_valid_f() {
    let mut p = Play::at("dirty");
    p.act(&[Action::Alloc(R), Action::WriteRefs])
        .rest()
        .act(&[Action::Kill, Action::Attach, Action::Mount])
        .rest();
    p.act(&[Action::Unmount, Action::Detach]).rest().act(&[Action::Attach]);
    assert!(matches!(p.0.volume().unwrap().standing(), Standing::Inactive(_)));
}

/// Flush: a flush that arrives while another runs waits for one of its own.
#[test]
fn a_flush_does_not_join() {
    let mut p = Play::at("flush");
    p.act(&[Action::FlushToo, Action::Write(O)]).lands("the client's write of O");
    p.act(&[Action::FlushToo]).unanswered(2).lands("the client's flush").unanswered(1);
    p.lands("the client's flush").unanswered(0).act(&[Action::PowerLoss(0), Action::Attach]);
}

/// Flush: a failed flush fails those that come after it too.
#[test]
fn a_failed_flush_latches() {
    let mut p = Play::at("flush");
    p.act(&[Action::Write(O)]).rest().act(&[Action::FlushToo, Action::Fail(0), Action::FlushToo]);
    p.idle().unanswered(0).act(&[Action::Write(X)]).idle().unanswered(0);
    p.act(&[Action::PowerLoss(0), Action::Attach]);
}
