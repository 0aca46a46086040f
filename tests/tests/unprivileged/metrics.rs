//! The metrics of a daemon that serves a volume: what a scraper gets, held against the conventions, against the
//! control socket, against the page that documents it and against the dashboard that shows it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fs2_tests::{Ask, Exposition, NbdClient, Need, Rng, Scratch, Served, mke2fs, needs, tool};
use serde_json::Value;

/// An active volume.
fn image(scratch: &Scratch) -> PathBuf {
    let (image, files) = (scratch.path("image"), scratch.make_dir("files"));
    fs::write(files.join("a"), Rng::new(7).bytes(1 << 20)).unwrap();
    mke2fs(&image, 32 << 20, &["-t", "ext2", "-b", "4096", "-d", files.to_str().unwrap()]);
    scratch.run("mkfs2", [&image]).ended(0);
    image
}

/// A daemon with metrics, a drive modelled a hundred times too fast, and some requests behind it.
fn served<'a>(scratch: &'a Scratch, image: &Path, socket: &Path) -> Served<'a> {
    let metrics = format!("--metrics=unix:{}", socket.display());
    let args = ["--require-active", "--drive", "wd800-repaired", "--time-scale", "0.01", &metrics];
    let served = Served::new(scratch, image, &args);
    let mut client = NbdClient::connect(served.socket()).unwrap();
    for i in 0..20 {
        client.call(Ask::Read, i * 1_000_000 / 512 * 512, 4096, &[]).unwrap();
    }
    let last = (32 << 20) - 4096;
    let content = client.call(Ask::Read, last, 4096, &[]).unwrap();
    client.call(Ask::Write { fua: false }, last, 4096, &content).unwrap();
    served
}

fn scrape(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).expect("the metrics' socket");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    body.to_owned()
}

fn repo(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every expression of a dashboard, wherever it is.
fn expressions(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, inside) in map {
                match (name.as_str(), inside) {
                    ("expr" | "query", Value::String(text)) => into.push(text.clone()),
                    _ => expressions(inside, into),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|v| expressions(v, into)),
        _ => {}
    }
}

/// The metrics an expression names, each with what is asked of its labels.
fn asked(expression: &str) -> Vec<(String, Vec<(String, String)>)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in expression.match_indices("fs2_") {
        let rest = &expression[at..];
        let name: String = rest.chars().take_while(|c| word(*c)).collect();
        let inside = rest[name.len()..].strip_prefix('{').and_then(|r| r.split_once('}')).map_or("", |r| r.0);
        let matchers = inside.split(',').filter_map(|m| m.split_once("=\""));
        let labels = matchers.map(|(l, v)| (l.trim().to_owned(), v.trim_end_matches('"').to_owned()));
        found.push((name, labels.filter(|(_, v)| !v.contains('$')).collect()));
    }
    found
}

#[test]
fn what_is_served_is_documented_shown_and_right() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let socket = scratch.path("metrics");
    let served = served(&scratch, &image, &socket);
    let page = Exposition::parse(&scrape(&socket)).unwrap();
    assert_eq!(page.lint(), Vec::<String>::new());

    let status = served.status();
    let number = |name: &str| status[name].as_u64().unwrap() as f64;
    assert_eq!(page.value("fs2_requests_total", &[("op", "read")]), number("reads"));
    assert_eq!(page.value("fs2_requests_total", &[("op", "write")]), 1.0);
    assert_eq!(page.value("fs2_request_bytes_total", &[("op", "read")]), 21.0 * 4096.0);
    assert_eq!(page.value("fs2_access_seconds_count", &[("op", "read")]), 21.0);
    assert_eq!(page.value("fs2_state", &[("state", "active")]), 1.0);
    assert_eq!(page.value("fs2_volume_bytes", &[]), number("volume_bytes"));
    assert!(page.value("fs2_access_part_seconds_total", &[("part", "rotation")]) > 0.0);
    let labels = |s: &fs2_tests::Sample| (s.labels["volume"].clone(), s.labels["device"].clone());
    let all: BTreeSet<_> = page.samples().map(labels).collect();
    let uuid = status["uuid"].as_str().unwrap().to_owned();
    assert_eq!(all, BTreeSet::from([(uuid, image.display().to_string())]));

    let text = repo("docs/monitoring.md");
    for name in page.families.keys() {
        assert!(text.contains(&format!("`{name}`")), "docs/monitoring.md does not tell of {name}");
    }
    for (name, _) in asked(&text.replace('`', " ")) {
        assert!(page.families.contains_key(&name), "docs/monitoring.md tells of {name}, which is not served");
    }

    let board: Value = serde_json::from_str(&repo("docs/grafana-dashboard.json")).unwrap();
    let mut all = Vec::new();
    expressions(&board, &mut all);
    assert!(all.len() > 15, "{all:?}");
    for expression in &all {
        let metrics = asked(expression);
        assert!(!metrics.is_empty() || expression.starts_with("prometheus"), "{expression}");
        for (name, labels) in metrics {
            let fits = |s: &&fs2_tests::Sample| {
                s.name == name && labels.iter().all(|(l, v)| s.labels.get(l).is_some_and(|x| x == v))
            };
            assert!(page.samples().any(|s| fits(&s)), "{expression}: there is no {name} {labels:?}");
        }
    }
    served.stop().ended(0);
    assert!(!socket.exists(), "the socket goes with its daemon");
}

#[test]
fn promtool_finds_nothing_wrong() {
    if !needs(&[Need::Program("mke2fs"), Need::Program("promtool")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let socket = scratch.path("metrics");
    let served = served(&scratch, &image, &socket);
    let check = |text: &str| {
        let mut promtool = Command::new(tool("promtool").unwrap());
        let promtool = promtool.args(["check", "metrics"]).stdin(Stdio::piped());
        let mut child = promtool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let page = scrape(&socket);
    assert_eq!(check(&page), (true, String::new()));
    let (good, said) = check(&page.replace("fs2_errors_total", "fs2_errors"));
    assert!(!good && said.contains("fs2_errors"), "it would find something: {said}");
    drop(served);
}

/// Two daemons cannot have one address, and no address that others reach is taken unasked: said before the volume
/// is touched.
#[test]
fn an_address_that_cannot_be_had_is_said_at_once() {
    if !needs(&[Need::Program("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let start = |place: &str| Served::start(&scratch, &image, &["--metrics", place]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = start(&address).expect_err("somebody has it").ended(2);
    refused.says("no metrics on").says("each volume needs an address of its own");
    start("0.0.0.0:0").expect_err("others reach it").ended(2).says("--metrics-remote allows it");
    start("nowhere").expect_err("no address").ended(1).says("neither unix:PATH nor ADDRESS:PORT");
}
