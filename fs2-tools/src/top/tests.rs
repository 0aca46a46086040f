//! Screens of fixed statuses, as text.

use fs2_control::{
    AccessMs, Control, EnergyJ, HotRegion, Liveness, Marks, Parts, PauseWork, Sample, Source, Status, TotalS,
    WatermarkState,
};
use proptest::prelude::*;

use super::model::Watched;
use super::screen::{View, draw};
use super::*;
use ratatui::crossterm::event::KeyCode;

fn text_of(view: &View<'_>, width: u16, height: u16) -> Result<String, String> {
    super::text_of(|frame| draw(frame, view), width, height)
}

/// The status of a volume after `n` seconds of a steady load.
fn status(n: u64) -> Status {
    let f = n as f64;
    let mut reads = vec![0; 64];
    (reads[3], reads[4], reads[40]) = (60 * n, 20 * n, 5 * n);
    let mut replica_reads = vec![0; 64];
    replica_reads[20] = 40 * n;
    let mut writes = vec![0; 64];
    writes[0] = 3 * n;
    Status {
        volume: "/dev/sdb1".into(),
        uuid: "1f2e3d4c-5566-7788-99aa-bbccddeeff00".into(),
        frontend: "ublk /dev/ublkb0 (2 queues)".into(),
        policy: "fs2".into(),
        drive: "wd800-repaired (simulated)".into(),
        liveness: Liveness::Active,
        volume_bytes: 80_000_000_000,
        block_bytes: 4096,
        free_share: 0.212,
        watermarks: Marks { high: 0.15, low: 0.1, critical: 0.05 },
        space_share: 0.05,
        watermark_state: WatermarkState::Copying,
        hot_region: Some(HotRegion { first_block: 900_000, last_block: 2_400_000 }),
        head_block: 6_100_000,
        parts: Parts { reads, replica_reads, writes, own: vec![0; 64] },
        replicas: 12_345,
        replica_bytes: 12_345 * 4096,
        replicas_unverified: 12,
        reads: 125 * n,
        read_bytes: 125 * n * 16_384,
        reads_from_replica: 40 * n,
        writes: 3 * n,
        write_bytes: 3 * n * 4096,
        discards: 0,
        flushes: n,
        requests_waiting: 3,
        ios_in_flight: 1,
        copies_written: 13_000 + 12 * n,
        copies_waiting: 12,
        copies_void: 655,
        pause_work: PauseWork { allowed: true, cost_ms: 3.25, limit_ms: 42.0 },
        access_ms: AccessMs {
            mean: Some(5.123),
            p99: Some(21.34),
            source: Source::Simulated("wd800-repaired".into()),
            ..AccessMs::default()
        },
        total_s: TotalS {
            reads: 125 * n,
            read: f * 0.5,
            read_wait: f * 0.125,
            writes: 3 * n,
            write: f * 0.02,
            accesses: 128 * n,
            seek: f * 0.16,
            rotation: f * 0.32,
            transfer: f * 0.032,
            saved: f * 0.1,
        },
        control: Control {
            every: 256,
            copies: Sample { reads: 40 * n, mean_ms: Some(2.12), error_ms: Some(0.05) },
            originals: Sample { reads: n / 6, mean_ms: Some(6.25), error_ms: Some(0.4) },
        },
        energy_j: EnergyJ { value: Some(1234.5), source: Source::Simulated("wd800-repaired".into()) },
        uptime_s: f,
        pid: 7,
        version: "0.1.0".into(),
        ..Status::default()
    }
}

fn watched(seconds: std::ops::RangeInclusive<u64>) -> Watched {
    let mut w = Watched::named("/srv");
    for n in seconds {
        let mut s = status(n);
        // Something to see in the history.
        s.total_s.read += (n % 5) as f64 * 0.1;
        w.told(Ok(s));
    }
    w
}

fn view(watched: &Watched) -> View<'_> {
    View { watched, number: (1, 1), interval_s: 1.0, paused: false, help: false, colors: false }
}

#[test]
fn the_screen_of_an_active_volume() {
    let watched = watched(3600..=3630);
    let text = text_of(&view(&watched), 80, 24).unwrap();
    assert_eq!(text, include_str!("screen.txt"), "\n{text}");
    // Colours change no letter.
    let colored = View { colors: true, ..view(&watched) };
    assert_eq!(text_of(&colored, 80, 24).unwrap(), text);
}

#[test]
fn an_inactive_volume_tells_its_remedy() {
    let mut w = Watched::named("/srv");
    let liveness = Liveness::Inactive("the last session did not end cleanly".into());
    w.told(Ok(Status { liveness, remedy: Some("chkfs2 -f -p /dev/sdb1".into()), ..status(1) }));
    let text = text_of(&view(&w), 80, 24).unwrap();
    for line in [
        " state     inactive: the last session did not end cleanly\n",
        " remedy    chkfs2 -f -p /dev/sdb1\n",
        " free      not known in this state; nothing is copied\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn troubles_are_told_and_do_not_hide_what_was_known() {
    let mut w = watched(1..=2);
    w.told(Ok(Status { hash_mismatches: 2, ..status(3) }));
    w.told(Err("no FS2 daemon answers\x1b[2J".into()));
    let text = text_of(&view(&w), 80, 24).unwrap();
    assert!(text.contains("\n !         no FS2 daemon answers?[2J, 2 hash mismatches\n"), "{text}");
    assert!(text.contains(" state     active; copies are made\n"), "{text}");
}

#[test]
fn nothing_known_yet() {
    let mut w = Watched::named("/srv");
    assert!(text_of(&view(&w), 80, 24).unwrap().contains("asking its daemon"));
    w.told(Err("nobody there".into()));
    assert!(text_of(&view(&w), 80, 24).unwrap().contains("nobody there"));
}

#[test]
fn help_names_every_key() {
    let w = watched(1..=2);
    let text = text_of(&View { help: true, number: (2, 3), paused: true, ..view(&w) }, 80, 24).unwrap();
    for word in ["q  ", "p space", "l Esc", "tab 1-9", "+ -", "h ?", "PAUSED  volume 2 of 3  every 1 s"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

fn found(names: &[&str]) -> Vec<Found> {
    names.iter().map(|n| Found::at(format!("/run/fs2/{n}.ctl"))).collect()
}

#[test]
fn keys_do_what_they_say() {
    let mut app = App::new(&found(&["a", "b", "c"]), 1.0);
    let key = |app: &mut App, c: char| assert!(app.key(KeyCode::Char(c), false));
    assert!(app.list, "of several, which one is for who looks to say");
    for (code, shown) in [
        (KeyCode::Down, 1),
        (KeyCode::Char('j'), 2),
        (KeyCode::Down, 2),
        (KeyCode::Up, 1),
        (KeyCode::Char('k'), 0),
    ] {
        app.key(code, false);
        assert_eq!((app.shown, app.list), (shown, true), "{code:?}");
    }
    key(&mut app, 'h');
    assert!(!app.help, "it tells of a volume's screen");
    app.key(KeyCode::Down, false);
    app.key(KeyCode::Enter, false);
    assert_eq!((app.shown, app.list), (1, false));
    key(&mut app, 'l');
    assert!(app.list);
    for (keys, shown) in [("2", 1), ("9", 1), ("1", 0)] {
        keys.chars().for_each(|c| key(&mut app, c));
        assert_eq!((app.shown, app.list), (shown, false), "{keys}");
    }
    for shown in [1, 2, 0] {
        app.key(KeyCode::Tab, false);
        assert_eq!(app.shown, shown);
    }
    app.key(KeyCode::BackTab, false);
    assert_eq!(app.shown, 2);
    "++".chars().for_each(|c| key(&mut app, c));
    assert_eq!(app.interval_s, 5.0);
    "-".repeat(20).chars().for_each(|c| key(&mut app, c));
    assert_eq!(app.interval_s, 0.1);
    "+".repeat(20).chars().for_each(|c| key(&mut app, c));
    assert_eq!(app.interval_s, 60.0);
    key(&mut app, 'p');
    key(&mut app, 'h');
    assert!(app.paused && app.help);
    assert!(app.key(KeyCode::Esc, false), "out of the help");
    assert!(!app.help && !app.list);
    assert!(app.key(KeyCode::Esc, false), "to the list");
    assert!(app.list);
    for (code, control) in [(KeyCode::Char('q'), false), (KeyCode::Esc, false), (KeyCode::Char('c'), true)] {
        assert!(!app.key(code, control), "{code:?}");
    }
    assert!(app.key(KeyCode::Char('c'), false));
    // One alone has no list.
    let mut app = App::new(&found(&["a"]), 1.0);
    assert!(!app.list && app.key(KeyCode::Char('l'), false));
    assert!(!app.list);
    assert!(!app.key(KeyCode::Esc, false));
    // No volume, no key that would look for one.
    let mut app = App::new(&[], 1.0);
    for code in [KeyCode::Enter, KeyCode::Tab, KeyCode::BackTab, KeyCode::Down, KeyCode::Char('1')] {
        assert!(app.key(code, false) && app.list);
    }
}

#[test]
fn volumes_come_and_go() {
    let mut app = App::new(&found(&["a"]), 1.0);
    let tell =
        |app: &mut App, name: &str, n| app.told(format!("/run/fs2/{name}.ctl").as_ref(), Ok(status(n)));
    assert!(tell(&mut app, "a", 1) && !tell(&mut app, "b", 1));
    assert!(!app.found(&found(&["a"])));
    assert!(app.found(&found(&["0", "a", "b"])));
    assert_eq!((app.shown, app.list), (1, false), "who looks at one is not disturbed");
    assert!(app.watched[1].now.is_some() && app.watched[0].now.is_none());
    assert!(app.found(&found(&["0", "b"])));
    assert_eq!((app.shown, app.list), (1, true));
    assert!(app.found(&[]));
    let text = super::text_of(|frame| app.draw(frame, false), 80, 24).unwrap();
    assert!(text.contains(screen::NOBODY), "{text}");
    app.paused = true;
    app.found(&found(&["a"]));
    assert!(!tell(&mut app, "a", 1), "what comes in a pause is left");
}

/// Found: a volume that was moved (`mount --move`), or mounted elsewhere between two looks, kept its first directory's name.
#[test]
fn a_volume_is_called_by_where_it_is_now() {
    let at = |dir: &str| {
        let text = format!(
            r#"{{"dir":"{dir}","device":"/dev/sdb1","control":"/run/fs2/a.ctl","log":"/run/fs2/a.log","pid":1,"frontend":"fuse",
            "block_device":"/dev/loop0","carrier":"/run/fs2/a.fuse","path":"/run/fs2/a.mount"}}"#
        );
        let record: crate::volume::MountRecord = serde_json::from_str(&text).unwrap();
        [Found { control: record.control.clone(), record: Some(record) }]
    };
    let mut app = App::new(&at("/srv"), 1.0);
    app.told(&at("/srv")[0].control, Ok(status(1)));
    assert!(!app.found(&at("/srv")) && app.found(&at("/home")));
    let text = super::text_of(|frame| app.draw(frame, false), 80, 24).unwrap();
    assert!(text.starts_with(" fs2 top  /home  /dev/sdb1 ") && text.contains(" state     active"), "{text}");
}

/// One that is well, one with much to say, one that is not mounted, one that does not answer.
fn several() -> App {
    let mut app = App::new(&found(&["a", "b", "c", "d"]), 2.0);
    let names = ["/srv", "/home/of/somebody/with/a/long/name", "/run/fs2/dev-2066.ctl", "/mnt"];
    for (w, name) in app.watched.iter_mut().zip(names) {
        (w.name, w.mounted) = (name.into(), name != names[2]);
    }
    for n in 3600..=3602 {
        app.watched[0].told(Ok(status(n)));
    }
    let inactive = Liveness::Inactive("no mark".into());
    let none = Status { volume: "/home/images/disk.img".into(), liveness: inactive, ..Status::default() };
    app.watched[1].told(Ok(none));
    let pause_work = PauseWork { allowed: false, cost_ms: 9.0, limit_ms: 1.0 };
    app.watched[2].told(Ok(Status { pause_work, ..status(7) }));
    app.watched[3].told(Err("no FS2 daemon answers".into()));
    app
}

#[test]
fn a_list_to_pick_from() {
    let mut app = several();
    app.shown = 1;
    let text = super::text_of(|frame| app.draw(frame, false), 80, 24).unwrap();
    assert_eq!(text, include_str!("list.txt"), "\n{text}");
    let colored = super::text_of(|frame| app.draw(frame, true), 80, 24).unwrap();
    assert_eq!(text, colored);
    // Narrow, what matters least is left out; low, the chosen one is seen.
    let narrow = super::text_of(|frame| app.draw(frame, false), 50, 10).unwrap();
    assert!(
        narrow.contains("mounted on") && narrow.contains("a read") && !narrow.contains("reads/s"),
        "{narrow}"
    );
    let names: Vec<String> = (0..50).map(|n| format!("{n}")).collect();
    let mut many = App::new(&found(&names.iter().map(|n| &**n).collect::<Vec<_>>()), 1.0);
    for shown in [0, 5, 6, 49] {
        many.shown = shown;
        let text = super::text_of(|frame| many.draw(frame, false), 50, 10).unwrap();
        assert!(text.contains(&format!(" >{:>2} ", shown + 1)), "{text}");
    }
}

/// Found: letters of two columns were counted as one. A title lost its right end and a list its columns; in text each had a blank behind it.
#[test]
fn wide_letters_take_their_columns() {
    let mut app = several();
    app.watched[0].name = "/srv/写真".into();
    app.watched[1].name = "/家庭/用户/图片/二〇〇五年/夏天".into();
    let list = super::text_of(|frame| app.draw(frame, false), 80, 24).unwrap();
    assert!(list.contains("\n > 1 /srv/写真     /dev/sdb1     active "), "{list}");
    assert!(list.contains("\n   2 …〇五年/夏天  …ges/disk.img inactive "), "{list}");
    (app.list, app.shown) = (false, 0);
    let one = super::text_of(|frame| app.draw(frame, false), 80, 24).unwrap();
    let title = one.lines().next().unwrap();
    assert!(title.starts_with(" fs2 top  /srv/写真  /dev/sdb1 "), "{title}");
    assert!(title.ends_with(" volume 1 of 4  every 2 s"), "{title}");
    let narrow = super::text_of(|frame| app.draw(frame, false), 50, 10).unwrap();
    assert!(narrow.starts_with(" fs2 top  /srv/写真  /d… volume 1 of 4  every 2 s\n"), "{narrow}");
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0), 0.0..1e12f64, 0.0..1.0f64]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Whatever a daemon says, on whatever screen: no panic, and no line beyond the screen.
    #[test]
    fn any_status_on_any_screen(
        n in proptest::array::uniform8(any::<u64>()),
        f in proptest::array::uniform8(number()),
        parts in proptest::collection::vec(any::<u64>(), 0..70),
        text in ".{0,100}",
        size in (1u16..130, 1u16..40),
        help in any::<bool>(),
    ) {
        let odd = |k: usize| Status {
            volume: text.clone(),
            frontend: text.clone(),
            policy: text.clone(),
            liveness: if n[0] % 2 == 0 { Liveness::Active } else { Liveness::Frozen(text.clone()) },
            volume_bytes: n[k],
            block_bytes: n[1] as u32,
            free_share: f[k],
            watermarks: Marks { high: f[1], low: f[2], critical: f[3] },
            hot_region: Some(HotRegion { first_block: n[2], last_block: n[3] }),
            head_block: n[4],
            parts: Parts { reads: parts.clone(), own: parts[..parts.len() / 2].to_vec(), ..Parts::default() },
            reads: n[5] / 2 + k as u64,
            reads_from_replica: n[6],
            read_bytes: n[7],
            copies_written: n[k],
            pause_work: PauseWork { allowed: help, cost_ms: f[4], limit_ms: f[5] },
            access_ms: AccessMs { mean: Some(f[6]), p99: Some(f[7]), ..AccessMs::default() },
            total_s: TotalS { reads: k as u64, read: f[k], read_wait: f[2], accesses: k as u64, seek: f[3], rotation: f[k + 1], ..TotalS::default() },
            control: Control { every: n[3] as u32, copies: Sample { reads: n[k], mean_ms: Some(f[1]), error_ms: Some(f[2]) }, ..Control::default() },
            energy_j: EnergyJ { value: Some(f[0]), source: Source::None },
            uptime_s: k as f64,
            ..Status::default()
        };
        let mut w = Watched::named(&text);
        for k in 0..4 {
            w.told(Ok(odd(k)));
        }
        let mut app = App::new(&found(&["a", "b"]), 1.0);
        app.watched[1] = w.clone();
        let list = super::text_of(|frame| app.draw(frame, true), size.0, size.1).unwrap();
        prop_assert_eq!(list.lines().count(), usize::from(size.1));
        let view = View { help, colors: true, number: (1, 2), ..view(&w) };
        let text = text_of(&view, size.0, size.1).unwrap();
        prop_assert_eq!(text.lines().count(), usize::from(size.1));
        let small = size.0 < screen::LEAST.0 || size.1 < screen::LEAST.1;
        prop_assert_eq!(text.starts_with("too small") || size.0 < 9, small || size.0 < 9);
    }
}

#[test]
fn an_unmounted_volume_is_told_from_a_daemon_that_is_silent() {
    let found = found(&["a"]);
    let mut app = App::new(&found, 1.0);
    let (to, from) = std::sync::mpsc::channel();
    let mut asking =
        Asking { interval_ms: Arc::default(), to: to.clone(), each: Vec::new(), unmounted: false };
    let mut tell = |answer| {
        to.send(Told::Answer(found[0].control.clone(), Box::new(answer))).unwrap();
        assert!(listen(&mut app, &mut asking, &from).unwrap());
        (asking.unmounted, super::text_of(|frame| app.draw(frame, false), 80, 24).unwrap())
    };
    assert!(!tell(Ok(status(1))).0);
    assert!(!tell(Err(VolumeError::Other("silent".into()))).0);
    let (unmounted, text) = tell(Err(VolumeError::Unmounted("/srv".into())));
    assert!(unmounted && text.contains("/srv is unmounted") && text.contains(" state     active"), "{text}");
}
