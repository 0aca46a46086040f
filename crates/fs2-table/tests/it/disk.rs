//! Pages to disk and back: torn, lost, mixed, foreign, forged.

use fs2_block::{BlockNo, BlockRange};
use fs2_table::{
    Header, Mark, PAGE_BYTES, PAGE_ENTRIES, Recovery, Replica, ReplicaTable, Report, Token, Trust,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

use crate::common::{GENERATION, Image, KEY, entry, limits};

const SECTOR: usize = 512;
use Trust::{Unverified, Verified};

fn filled(n: u32, trust: Trust) -> ReplicaTable {
    let mut table = ReplicaTable::new(10 * PAGE_ENTRIES, 1);
    for k in 0..n {
        table.insert(entry(1000 + k, 5000 + 2 * k, u64::from(k) * 77, trust)).unwrap();
    }
    table
}

fn seal(page: &mut [u8]) {
    let crc = crc32c::crc32c(&page[8..]);
    page[4..8].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_report_is_clean_or_says_what_is_wrong() {
    let clean = Report {
        pages: 10,
        pages_used: 3,
        entries: 5,
        kept_verified: 2,
        kept_unverified: 3,
        ..Report::default()
    };
    assert!(clean.is_clean());
    assert_eq!(clean.dropped(), 0);
    assert_eq!(clean.to_string(), "5 replicas (2 verified, 3 unverified) in 3 of 10 pages");
    type Break = fn(&mut Report);
    let wrong: [(Break, &str); 5] = [
        (|r| r.pages_damaged = 1, "; 1 page damaged"),
        (|r| r.pages_foreign = 2, "; 2 pages of another table"),
        (|r| r.pages_unread = 3, "; 3 pages not read"),
        (|r| r.pages_newer = 4, "; 4 pages newer than the header, not trusted"),
        (|r| r.pages_overlapping = 5, "; 5 pages overlapping, rearranged"),
    ];
    for (break_it, words) in wrong {
        let mut report = clean;
        break_it(&mut report);
        assert!(!report.is_clean(), "{words}");
        assert_eq!(report.to_string(), format!("{clean}{words}"));
    }
    let lost = Report { entries: 6, forbidden: 1, ..clean };
    assert!(!lost.is_clean());
    assert_eq!((lost.dropped(), lost.to_string().ends_with("the volume's ends")), (1, true));
}

/// Who attaches reads the pages before the end that the mark tells, and has the same table as from all of them.
#[test]
fn pages_that_the_mark_says_are_zero_are_not_read() {
    let mut table = filled(1000, Verified);
    let mut image = Image::new(11);
    assert_eq!((table.pages_end(), image.flush(&mut table, true)), (5, 5));
    let token = Token::new([1; 1024], &[2; 32], &[]);
    let marked = |image: &Image, pages_end| {
        let mark = Mark { token, bitmap_checksums_hash: 3, pages_end };
        let header = Header { mark: Some(Box::new(mark)), ..image.header.clone() };
        let mut recovery = Recovery::marked(image.geometry, &header, limits(1, true));
        let pages = recovery.pages();
        // More than it asks for is not looked at.
        recovery.feed(0, &image.bytes);
        let (table, report) = recovery.finish();
        table.check();
        (table, report, pages)
    };
    image.page(5).fill(0xee);
    let (back, report, fed) = marked(&image, Some(table.pages_end()));
    assert_eq!((fed, report.is_clean()), (5, true), "{report}");
    assert_eq!((report.pages, report.pages_used, report.pages_empty), (11, 5, 6));
    assert!(back.iter().eq(table.iter()) && back.pages_end() == 5);
    let (_, report, fed) = marked(&image, None);
    assert_eq!((fed, report.pages_damaged), (11, 1), "of an earlier FS2 all are read");
    assert_eq!(marked(&image, Some(4)).1.entries, 1000 - 8);
    assert_eq!(marked(&image, Some(0)).0.len(), 0);

    // Pages behind the end are as good as any, and what is taken away counts until it is gone from disk too.
    image.page(5).fill(0);
    let (mut back, _, _) = marked(&image, Some(5));
    for k in 0..1200 {
        back.insert(entry(2000 + k, 7000 + k, u64::from(k), Unverified)).unwrap();
    }
    back.check();
    assert!(back.pages_end() > 5);
    image.flush(&mut back, true);
    let (again, report, _) = marked(&image, Some(back.pages_end()));
    assert!(report.is_clean() && again.len() == back.len(), "{report}");
    back.clear();
    assert!(back.pages_end() > 5, "on disk it is full");
    image.flush(&mut back, true);
    assert_eq!(back.pages_end(), 0);
}

/// The run 100..106 at 1000..1006 with its third entry there twice: one entry in the middle of a run is to be
/// verified, those beside it are not.
#[test]
fn a_run_trusted_but_for_its_middle() {
    let mut image = Image::new(2);
    let run: Vec<_> = (0..6).map(|k| (500 + k, 1000 + k, u64::from(k))).collect();
    image.page(0).copy_from_slice(&forge(0, &run, true));
    image.page(1).copy_from_slice(&forge(1, &run[2..3], true));
    let (table, report) = image.recover(limits(1, true));
    table.check();
    assert_eq!((report.repeated, report.kept_verified, report.kept_unverified), (1, 5, 1));
    for k in 0..6 {
        let found: Vec<_> = table.replicas_of(BlockNo(500 + k)).collect();
        assert_eq!(found, [entry(500 + k, 1000 + k, k.into(), if k == 2 { Unverified } else { Verified })]);
    }
    assert_eq!(table.copy_of_run(BlockRange::new(503, 506)).count(), 1);
}

/// Seventy originals in a row, all of a granule of 64 among them, each with one replica more than may be.
#[test]
fn every_original_of_a_long_run_has_too_many() {
    let mut image = Image::new(2);
    let run = |replica: u32| -> Vec<_> { (0..70).map(|k| (512 + k, replica + k, 1)).collect() };
    image.page(0).copy_from_slice(&forge(0, &run(1000), true));
    image.page(1).copy_from_slice(&forge(1, &run(2000), true));
    let (table, report) = image.recover(limits(1, true));
    table.check();
    assert_eq!((report.over_degree, table.len()), (70, 70));
    let (table, report) = image.recover(limits(2, true));
    assert_eq!((report.over_degree, table.len()), (0, 140));
}

#[test]
fn of_many_damages_the_first_are_kept() {
    let image = Image::new(130);
    let mut recovery = Recovery::new(image.geometry, &image.header, limits(1, true));
    assert_eq!(recovery.pages(), 130);
    recovery.feed(10, &vec![7; 120 * PAGE_BYTES]);
    let damages: Vec<u32> = recovery.damages().iter().map(|d| d.0).collect();
    assert_eq!(damages, (10..110).collect::<Vec<_>>());
    assert!(format!("{:?}", limits(1, true)).contains("trust_verified: true"));
    let (_, report) = recovery.finish();
    assert_eq!((report.pages_damaged, report.pages_unread), (120, 10));
}

#[test]
fn there_and_back() {
    let mut table = filled(1000, Verified);
    table.set_trust(BlockNo(5000), Unverified);
    (0..100).for_each(|_| table.touch(BlockNo(5100)));
    (0..20).for_each(|_| table.age());
    (0..100).for_each(|_| table.touch(BlockNo(5150)));
    (0..9).for_each(|_| table.age());
    // As many uses as count; a quarter of an octave less for each step.
    assert_eq!(table.age_and_value(BlockNo(5150)), Some((9, 36 - 18)));
    let mut image = Image::new(11);
    assert_eq!(image.flush(&mut table, true), 5);
    let (back, report) = image.recover(limits(1, true));
    back.check();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.pages, report.pages_used, report.pages_empty), (11, 5, 6));
    // The one unverified entry keeps its page from being flagged.
    assert_eq!((report.kept_verified, report.kept_unverified), (1000 - 248, 248));
    let expected = table.iter().map(|r| match r.replica.0 < 5000 + 2 * 248 {
        true => Replica { trust: Unverified, ..r },
        false => r,
    });
    assert!(back.iter().eq(expected));
    assert_eq!(back.dirty_pages(), 0);
    assert_eq!(back.pages_needing_flag_change(true).count(), 0);
    assert_eq!(back.age_and_value(BlockNo(5100)), table.age_and_value(BlockNo(5100)));
    assert_eq!(back.age_and_value(BlockNo(5150)), Some((9, 36 - 18)));
    assert_eq!(back.age_and_value(BlockNo(5300)).unwrap().0, 29);

    // Trusting nothing is a matter of flags alone.
    let (mut nothing, _) = image.recover(limits(1, false));
    assert_eq!(nothing.unverified_count(), 1000);
    assert_eq!(nothing.dirty_pages(), 0);
    assert_eq!(nothing.pages_needing_flag_change(true).count(), 4);
    assert_eq!(image.flush(&mut nothing, true), 4);
    assert_eq!(image.recover(limits(1, true)).0.unverified_count(), 1000);
}

#[test]
fn no_page_is_flagged_verified_where_that_is_not_allowed() {
    let mut table = filled(300, Verified);
    let forbidden = table.encode_page(0, 1, KEY, false);
    assert!(!forbidden.verified && forbidden.bytes[30] == 0);
    let allowed = table.encode_page(0, 1, KEY, true);
    assert!(allowed.verified && allowed.bytes[30] == 1);
    let mut image = Image::new(11);
    image.flush(&mut table, true);
    assert_eq!(table.pages_needing_flag_change(true).count(), 0);
    assert_eq!(table.pages_needing_flag_change(false).collect::<Vec<_>>(), [0, 1]);
    assert!(table.set_trust(BlockNo(5000), Unverified));
    assert_eq!(table.pages_needing_flag_change(true).collect::<Vec<_>>(), [0]);
    table.mark_written(0, &forbidden);
    assert_eq!(table.pages_needing_flag_change(true).count(), 0);
}

#[test]
fn a_change_during_the_write_keeps_the_page_dirty() {
    let mut table = filled(10, Verified);
    let encoded = table.encode_page(0, 1, KEY, true);
    table.remove(BlockNo(5000));
    table.mark_written(0, &encoded);
    assert_eq!(table.next_dirty_page(None), Some(0));
    let encoded = table.encode_page(0, 1, KEY, true);
    table.mark_written(0, &encoded);
    assert_eq!((table.dirty_pages(), table.next_dirty_page(None)), (0, None));
    // A write that failed may have left anything.
    table.mark_dirty(0);
    assert_eq!(table.dirty_pages(), 1);
    // Use alone makes nothing dirty.
    table.mark_written(0, &encoded);
    assert_eq!(table.dirty_pages(), 1, "the failed write came between");
    let encoded = table.encode_page(0, 1, KEY, true);
    table.mark_written(0, &encoded);
    table.touch(BlockNo(5002));
    assert_eq!(table.dirty_pages(), 0);
}

#[test]
fn pages_that_became_empty_are_written_as_zero() {
    let mut table = filled(600, Verified);
    let mut image = Image::new(11);
    image.flush(&mut table, true);
    table.remove_by_replica(BlockRange::new(0, 6000));
    image.flush(&mut table, false);
    let (back, report) = image.recover(limits(1, true));
    assert!(report.is_clean() && back.iter().eq(table.iter()));
    table.clear();
    image.flush(&mut table, false);
    assert!(image.bytes.iter().all(|&b| b == 0));
}

#[test]
fn a_torn_page_is_found_or_is_one_of_the_two() {
    let mut image = Image::new(3);
    let mut table = filled(200, Verified);
    image.flush(&mut table, true);
    let old = image.page(0).to_vec();
    for (case, change) in [
        (
            0,
            Box::new(|t: &mut ReplicaTable| assert!(t.remove(BlockNo(5050)).is_some()))
                as Box<dyn Fn(&mut ReplicaTable)>,
        ),
        (1, Box::new(|t| t.insert(entry(900, 5001, 3, Verified)).unwrap())),
        (2, Box::new(|t| assert!(t.set_trust(BlockNo(5398), Unverified)))),
        (3, Box::new(|t| t.clear())),
    ] {
        let mut table = table.clone();
        change(&mut table);
        let new = table.encode_page(0, GENERATION, KEY, true).bytes;
        assert_ne!(old[..], new[..]);
        for sectors in 0..=255u8 {
            let mut torn = old.clone();
            for i in (0..8).filter(|i| sectors >> i & 1 == 1) {
                torn[i * SECTOR..][..SECTOR].copy_from_slice(&new[i * SECTOR..][..SECTOR]);
            }
            image.page(0).copy_from_slice(&torn);
            let (back, report) = image.recover(limits(1, true));
            if torn[..] == old[..] || torn[..] == new[..] {
                assert!(report.is_clean());
            } else {
                assert_eq!((report.pages_damaged, back.len()), (1, 0), "case {case}, sectors {sectors:08b}");
                assert_eq!(back.next_dirty_page(None), Some(0), "it is to be overwritten");
            }
        }
    }
}

#[test]
fn every_bit_of_a_page_counts() {
    let mut image = Image::new(1);
    let mut table = filled(240, Verified);
    image.flush(&mut table, true);
    for bit in 0..PAGE_BYTES * 8 {
        image.bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(image.recover(limits(1, true)).1.pages_damaged, 1, "bit {bit}");
        image.bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(image.recover(limits(1, true)).1.is_clean());
}

#[test]
fn pages_of_others() {
    let mut image = Image::new(4);
    let mut table = filled(600, Verified);
    image.flush(&mut table, true);
    let (zero, one) = (image.page(0).to_vec(), image.page(1).to_vec());
    // A page in another's place.
    image.page(1).copy_from_slice(&zero);
    let (_, report) = image.recover(limits(1, true));
    assert_eq!((report.pages_damaged, report.entries), (1, 600 - 248));
    // A page of another volume.
    let foreign = table.encode_page(1, GENERATION, KEY + 1, true);
    image.page(1).copy_from_slice(&foreign.bytes[..]);
    assert_eq!(image.recover(limits(1, true)).1.pages_foreign, 1);
    // A page newer than the header is used and not trusted.
    let newer = table.encode_page(1, GENERATION + 1, KEY, true);
    image.page(1).copy_from_slice(&newer.bytes[..]);
    let (back, report) = image.recover(limits(1, true));
    assert_eq!((report.pages_newer, back.len(), back.unverified_count()), (1, 600, 248));
    assert_eq!(back.next_dirty_page(None), Some(1), "a header that catches up must not revive it");
    // Pages never fed are not trusted to be empty.
    image.page(1).copy_from_slice(&one);
    let mut recovery = fs2_table::Recovery::new(image.geometry, &image.header, limits(1, true));
    recovery.feed(0, &zero);
    recovery.feed(2, &image.bytes[2 * PAGE_BYTES..3 * PAGE_BYTES]);
    recovery.feed(2, &zero);
    recovery.feed(9, &zero);
    recovery.feed(3, &[0; 100]);
    recovery.feed(3, &one);
    assert_eq!(recovery.damages(), [(3, fs2_table::PageDamage::Misplaced(1))]);
    let (back, report) = recovery.finish();
    assert_eq!((report.pages_unread, report.pages_damaged, back.len()), (1, 1, 600 - 248));
    assert_eq!((back.next_dirty_page(None), back.next_dirty_page(Some(1))), (Some(1), Some(3)));
}

#[test]
fn forged_pages_are_against_the_format() {
    let mut image = Image::new(1);
    let mut table = filled(100, Verified);
    image.flush(&mut table, true);
    let good = image.bytes.clone();
    let mut refused = |what: &str, forge: &dyn Fn(&mut [u8])| {
        image.bytes.copy_from_slice(&good);
        forge(&mut image.bytes);
        seal(&mut image.bytes);
        let (back, report) = image.recover(limits(1, true));
        assert_eq!((report.pages_damaged, back.len()), (1, 0), "{what}");
    };
    refused("more than a page holds", &|p| p[28..30].copy_from_slice(&300u16.to_le_bytes()));
    refused("none", &|p| p[28] = 0);
    refused("fewer than there are", &|p| p[28] = 99);
    refused("more than there are", &|p| p[28] = 102);
    refused("an unknown flag", &|p| p[30] |= 2);
    refused("an unknown flag in its second byte", &|p| p[31] = 1);
    refused("a count in its second byte", &|p| p[29] = 1);
    refused("reserved bytes", &|p| p[40] = 1);
    refused("not ascending", &|p| p.copy_within(64 + 4..64 + 8, 64 + 16 + 4));
    refused("its number", &|p| p[24] = 1);
}

/// Whether an entry's addresses are within [`limits`].
fn good(&(o, r, _): &(u32, u32, u64)) -> bool {
    let ok = |b: u32| (1..10_000).contains(&b);
    ok(o) && ok(r) && o != r && !(300..400).contains(&r) && !(300..350).contains(&o)
}

/// The load filter as one would write it down.
fn expected(pages: &[Vec<(u32, u32, u64)>], degree: usize) -> BTreeSet<(u32, u32, u64)> {
    // (page generation, entry); page n was written at generation n.
    let all: Vec<(usize, (u32, u32, u64))> = pages
        .iter()
        .enumerate()
        .flat_map(|(n, p)| p.iter().copied().filter(good).map(move |e| (n, e)))
        .collect();
    let mut by_replica: BTreeMap<u32, BTreeMap<(u32, u32, u64), usize>> = BTreeMap::new();
    for &(n, e) in &all {
        by_replica.entry(e.1).or_default().insert(e, n);
    }
    let unique: Vec<_> =
        by_replica.values().filter(|e| e.len() == 1).flatten().map(|(&e, &n)| (n, e)).collect();
    let replicas: BTreeSet<u32> = unique.iter().map(|(_, e)| e.1).collect();
    let originals: BTreeSet<u32> = unique.iter().map(|(_, e)| e.0).collect();
    let plain = unique.into_iter().filter(|(_, e)| !replicas.contains(&e.0) && !originals.contains(&e.1));
    let mut by_original: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (n, e) in plain {
        by_original.entry(e.0).or_default().push((std::cmp::Reverse(n), e.1, e));
    }
    let mut kept = BTreeSet::new();
    for mut copies in by_original.into_values() {
        copies.sort();
        kept.extend(copies.into_iter().take(degree).map(|(.., e)| e));
    }
    kept
}

/// Encodes entries that no table would hold.
fn forge(number: u32, entries: &[(u32, u32, u64)], verified: bool) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    if entries.is_empty() {
        return page;
    }
    page[..4].copy_from_slice(b"FS2P");
    page[8..16].copy_from_slice(&u64::from(number).to_le_bytes());
    page[16..24].copy_from_slice(&KEY.to_le_bytes());
    page[24..28].copy_from_slice(&number.to_le_bytes());
    page[28..30].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    page[30] = verified.into();
    for (i, (original, replica, hash)) in entries.iter().enumerate() {
        let at = 64 + 16 * i;
        page[at..at + 4].copy_from_slice(&original.to_le_bytes());
        page[at + 4..at + 8].copy_from_slice(&replica.to_le_bytes());
        page[at + 8..at + 16].copy_from_slice(&hash.to_le_bytes());
    }
    seal(&mut page);
    page
}

/// Pages of any entries, made from runs so that they collide in interesting ways.
fn any_pages() -> impl Strategy<Value = Vec<Vec<(u32, u32, u64)>>> {
    let address =
        || prop_oneof![10 => 380u32..1200, 2 => 290u32..420, 1 => 9900u32..10100, 1 => any::<u32>()];
    let run = (address(), address(), 1u32..70, 0u64..2);
    let page = prop::collection::vec(run, 0..5).prop_map(|runs| {
        let mut by_replica = BTreeMap::new();
        for (o, r, len, hash) in runs {
            for k in 0..len {
                by_replica.insert(r.wrapping_add(k), (o.wrapping_add(k), r.wrapping_add(k), hash));
            }
        }
        by_replica.into_values().take(PAGE_ENTRIES).collect()
    });
    prop::collection::vec(page, 1..7)
}

fn recover_forged(pages: &[Vec<(u32, u32, u64)>], degree: u8) -> (ReplicaTable, fs2_table::Report) {
    let mut image = Image::new(pages.len() as u32);
    for (n, entries) in pages.iter().enumerate() {
        image.page(n as u32).copy_from_slice(&forge(n as u32, entries, true));
    }
    image.recover(limits(degree, true))
}

#[test]
fn pages_that_meet_in_one_replica() {
    // The last of one page is the first of the other.
    let (table, report) =
        recover_forged(&[vec![(500, 700, 1), (502, 702, 1)], vec![(504, 702, 1), (506, 704, 1)]], 1);
    assert_eq!((report.pages_overlapping, report.same_replica, table.len()), (2, 2, 2));
    // The same entry in both, each page verified: a crash left it so, hence no one vouches for it.
    let (table, report) =
        recover_forged(&[vec![(500, 700, 1), (502, 702, 1)], vec![(502, 702, 1), (506, 704, 1)]], 1);
    assert_eq!((report.repeated, table.len(), table.unverified_count()), (1, 3, 1));
    assert_eq!(table.by_replica(BlockNo(702)).unwrap().trust, Unverified);
    // A long page that reaches over two short ones.
    let (table, report) =
        recover_forged(&[vec![(500, 700, 1), (508, 708, 1)], vec![(502, 702, 1)], vec![(509, 708, 1)]], 1);
    assert_eq!((report.pages_overlapping, report.same_replica, table.len()), (3, 2, 2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_load_filter(pages in any_pages(), degree in 1u8..4, verified: u8) {
        let mut image = Image::new(pages.len() as u32);
        for (n, entries) in pages.iter().enumerate() {
            image.page(n as u32).copy_from_slice(&forge(n as u32, entries, verified >> n & 1 == 1));
        }
        let (mut table, report) = image.recover(limits(degree, true));
        table.check();
        let got: BTreeSet<_> = table.iter().map(|r| (r.original.0, r.replica.0, r.hash)).collect();
        prop_assert_eq!(got, expected(&pages, degree.into()));
        prop_assert_eq!(report.entries, pages.iter().map(|p| p.len() as u64).sum::<u64>());
        let dropped = report.out_of_range + report.own_replica + report.forbidden + report.repeated
            + report.same_replica + report.contradictory + report.over_degree;
        prop_assert_eq!(report.dropped(), dropped, "{}", report);
        prop_assert_eq!(report.kept_verified + report.kept_unverified, table.len() as u64);
        for r in table.iter().filter(|r| r.trust == Verified) {
            let in_verified = |(n, p): (usize, &Vec<(u32, u32, u64)>)| {
                verified >> n & 1 == 1 || p.iter().all(|e| e.1 != r.replica.0 || !good(e))
            };
            prop_assert!(pages.iter().enumerate().all(in_verified), "{r:?} is vouched for by all who name it");
        }
        // C3: once what differs is written, the same table comes back and nothing is wrong.
        image.flush(&mut table, true);
        let (again, report) = image.recover(limits(degree, true));
        prop_assert!(report.is_clean(), "{}", report);
        prop_assert_eq!(again.dirty_pages(), 0);
        let content = |t: &ReplicaTable| t.iter().map(|r| (r.original, r.replica, r.hash)).collect::<Vec<_>>();
        prop_assert_eq!(content(&again), content(&table));
        let ours: BTreeMap<_, _> = table.iter().map(|r| (r.replica, r.trust)).collect();
        prop_assert!(again.iter().all(|r| r.trust >= ours[&r.replica]), "nothing became verified by itself");
    }

    #[test]
    fn any_bytes_never_panic(
        pages in prop::collection::vec(prop::collection::vec(any::<u8>(), 4096), 1..4),
        magic: bool, count in 0u16..300,
    ) {
        let mut image = Image::new(pages.len() as u32);
        for (n, bytes) in pages.iter().enumerate() {
            let page = image.page(n as u32);
            page.copy_from_slice(bytes);
            if magic {
                let real = forge(n as u32, &[(0, 0, 0)], true);
                page[..64].copy_from_slice(&real[..64]);
                page[28..30].copy_from_slice(&count.to_le_bytes());
                seal(page);
            }
        }
        let (table, report) = image.recover(limits(1, true));
        table.check();
        prop_assert_eq!(report.pages_damaged as usize, pages.len());
    }

    #[test]
    fn a_crash_in_a_flush(
        runs in prop::collection::vec((400u32..3900, 4000u32..9000, 1u32..100), 2..60), cut: usize,
        gone in (4000u32..9000, 1u32..1500), landed: u32,
    ) {
        // Some runs, a flush; more runs and a removal, a flush of which any part arrives.
        let mut table = ReplicaTable::new(12 * PAGE_ENTRIES, 1);
        let mut image = Image::new(13);
        let mut ever = BTreeSet::new();
        let add = |table: &mut ReplicaTable, ever: &mut BTreeSet<_>, runs: &[(u32, u32, u32)]| {
            for &(o, r, len) in runs {
                for k in 0..len {
                    let new = entry(o + k, r + k, u64::from(o) << 32 | u64::from(r), Verified);
                    if table.insert(new).is_ok() {
                        ever.insert(new);
                    }
                }
            }
        };
        let cut = cut % runs.len();
        add(&mut table, &mut ever, &runs[..cut]);
        image.flush(&mut table, true);
        let before: BTreeSet<Replica> = table.iter().collect();
        table.remove_by_replica(BlockRange::new(gone.0, gone.0 + gone.1));
        add(&mut table, &mut ever, &runs[cut..]);
        let after: BTreeSet<Replica> = table.iter().collect();
        let mut whole = image.clone();
        whole.flush(&mut table, true);
        let dirty: Vec<u32> = (0..13).filter(|&p| whole.page(p) != image.page(p)).collect();
        for (i, &p) in dirty.iter().enumerate().filter(|(i, _)| landed >> i & 1 == 1) {
            image.page(p).copy_from_slice(whole.page(p));
            prop_assert!(i < 13);
        }
        let (back, report) = image.recover(limits(1, false));
        back.check();
        prop_assert_eq!(report.pages_damaged, 0);
        for r in back.iter() {
            prop_assert_eq!(r.trust, Unverified);
            prop_assert!(ever.contains(&Replica { trust: Verified, ..r }), "{r:?} was never there");
        }
        if dirty.iter().enumerate().all(|(i, _)| landed >> i & 1 == 1) {
            let got: BTreeSet<_> = back.iter().map(|r| Replica { trust: Verified, ..r }).collect();
            prop_assert_eq!(&got, &after);
        } else if dirty.iter().enumerate().all(|(i, _)| landed >> i & 1 == 0) {
            let got: BTreeSet<_> = back.iter().map(|r| Replica { trust: Verified, ..r }).collect();
            prop_assert_eq!(&got, &before);
        }
    }
}
