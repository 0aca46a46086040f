//! Pages as `fs2-replay run --html` writes them, of traces made here.

use std::fmt::Write;
use std::path::Path;

use crate::report::page::check::{asks_for_nothing, elements};

fn run(args: &[&str]) -> (i32, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = ["fs2-replay", "run"].iter().chain(args).map(|a| (*a).into());
    let code = crate::replay::run(all, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (code, text(out), text(err))
}

/// `rounds` times the same reads at scattered places, now and then a write between.
fn write_trace(path: &Path, rounds: u64, each: u64) {
    let mut text = String::new();
    for i in 0..rounds * each {
        let (round, n) = (i / each, i % each);
        let at = round as f64 * 100.0 + n as f64 * 0.02;
        let sector = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 43 << 3;
        let what = if n % 50 == 49 { "W" } else { "R" };
        writeln!(text, "{at:.6} D {what} {sector} 16 7 reader").expect("a string takes it");
    }
    std::fs::write(path, text).expect("the scratch directory can be written");
}

/// What follows the style.
fn body(page: &str) -> &str {
    page.split_once("</style>").expect("one style sheet").1
}

const ALL: [&str; 5] = ["breakdown", "addresses", "distances", "distributions", "growth"];

#[test]
fn a_page_of_a_hostile_trace_has_every_picture_and_asks_for_nothing() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let name = "x<script>alert(1)<b onload=\"y\">'&\u{1b}.txt";
    let (trace, page) = (dir.path().join(name), dir.path().join("page.html"));
    write_trace(&trace, 2, 400);
    let (trace, to) = (trace.to_str().expect("text"), page.to_str().expect("text"));
    let args = [trace, "--closed-loop", "--split", "0,100", "--policy", "none,fs2-2005,fs2", "--html", to];
    let (code, out, err) = run(&args);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("fs2-2005\n"), "the table is printed too");
    let html = std::fs::read_to_string(&page).expect("a page");
    asks_for_nothing(&html);
    assert_eq!(
        html.matches("x&lt;script&gt;alert(1)&lt;b onload=&quot;y&quot;&gt;&#39;&amp; .txt").count(),
        3
    );
    assert!(html.contains("In run 2 a read took") && html.contains(" with fs2-2005 ("));
    for id in ALL {
        assert!(html.contains(&format!("<figure id=\"{id}\">")), "{id}");
    }
    // Two of bars, first and last run of three policies twice, two distributions, growth, two hot regions.
    assert_eq!(html.matches("role=\"img\"").count(), 2 + 6 + 6 + 2 + 1 + 2);
    for (at, tag) in html.match_indices("aria-label=\"") {
        let say = html[at + tag.len()..].split('"').next().expect("an attribute ends");
        assert!(say.len() > 60 && say.contains('.'), "{say}");
    }
    for unit in
        ["ms a read", "mJ an access", "begin, s<", "address, GiB<", "time, ms<", "before, bytes<", "copies, "]
    {
        assert!(html.contains(unit), "{unit}");
    }
    for kind in ["s-read", "s-copy", "s-write"] {
        assert!(html.contains(&format!("class=\"dots {kind}\"")), "{kind}");
    }
    // The same again is the same page.
    assert_eq!(run(&args).0, 0);
    assert!(std::fs::read_to_string(&page).expect("a page") == html, "the page depends on chance");
}

/// Light and dark differ in custom properties only, so nothing else may name a colour, and each class must be
/// one the style knows.
#[test]
fn every_colour_is_the_styles() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (trace, page) = (dir.path().join("a.txt"), dir.path().join("page.html"));
    write_trace(&trace, 1, 300);
    let args = [
        trace.to_str().expect("text"),
        "--runs",
        "1",
        "--policy",
        "all,torture",
        "--html",
        page.to_str().expect("text"),
    ];
    assert_eq!(run(&args).0, 0);
    let html = std::fs::read_to_string(&page).expect("a page");
    let (style, body) = html.split_once("</style>").expect("one style sheet");
    assert!(!body.contains("=\"#") && !body.contains("rgb("));
    let mut classes: Vec<&str> =
        body.split("class=\"").skip(1).flat_map(|t| t.split('"').next().unwrap_or("").split(' ')).collect();
    classes.sort_unstable();
    classes.dedup();
    for class in &classes {
        assert!(style.contains(&format!(".{class}")) || *class == "d0", "{class}");
    }
    assert!(classes.contains(&"d2") && classes.contains(&"s-p4"), "{classes:?}");
}

#[test]
fn a_page_stays_below_three_megabytes() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (trace, page) = (dir.path().join("a.txt"), dir.path().join("page.html"));
    write_trace(&trace, 1, 1500);
    let (code, _, err) = run(&[
        trace.to_str().expect("text"),
        "--runs",
        "2",
        "--policy",
        "all,torture",
        "--html",
        page.to_str().expect("text"),
    ]);
    assert_eq!((code, err.as_str()), (0, ""));
    let html = std::fs::read_to_string(&page).expect("a page");
    let dots = body(&html).matches("h.01").count();
    assert!(dots > 50_000, "{dots}: no case for the bound");
    assert!(html.len() < 3_000_000, "{}", html.len());
    elements(&html);
}

#[test]
fn a_trace_of_nothing_has_a_page_without_pictures() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (trace, page) = (dir.path().join("a.txt"), dir.path().join("page.html"));
    std::fs::write(&trace, "0.5 D F 0 0 7 sync\n").expect("the scratch directory can be written");
    let (trace, page) = (trace.to_str().expect("text"), page.to_str().expect("text"));
    let (code, _, err) = run(&[trace, "--runs", "1", "--html", page]);
    assert_eq!(code, 0, "{err}");
    let html = std::fs::read_to_string(page).expect("a page");
    asks_for_nothing(&html);
    assert!(!html.contains("NaN") && !html.contains("inf"));
    assert!(!html.contains("id=\"addresses\""));
}

#[test]
fn a_page_that_cannot_be_written_is_known_at_once() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let to = dir.path().join("no/such/page.html");
    let (code, _, err) = run(&["/nowhere", "--html", to.to_str().expect("text")]);
    assert!(code == 1 && err.contains("page.html") && !err.contains("/nowhere"), "{err}");
    let (code, _, err) = run(&["/nowhere", "--html", dir.path().to_str().expect("text")]);
    assert!(code == 1 && err.contains("not a file"), "{err}");
    // A run that fails leaves nothing behind.
    let to = dir.path().join("page.html");
    assert_eq!(run(&["/nowhere", "--html", to.to_str().expect("text")]).0, 1);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
}
