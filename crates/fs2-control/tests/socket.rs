//! Server and client over real sockets.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use fs2_control::{
    COMMAND_BYTES_MAX, Client, Command, ControlError, ControlServer, Liveness, PROTOCOL_VERSION, Reply,
    ServeError, ServeLimits, Status, remove_stale, serve, serve_with,
};
use tempfile::TempDir;

/// A directory and the path of a socket in it.
fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control");
    (dir, path)
}

fn handler(command: Command) -> Reply {
    match command {
        Command::Status => Reply::Status(Box::new(Status {
            volume: "/dev/x".into(),
            liveness: Liveness::Active,
            reads: 7,
            ..Status::default()
        })),
        Command::TraceStart { path } => Reply::error("no room", path.display().to_string(), ""),
        Command::Detach => Reply::error("busy", "/dev/x", "unmount it"),
        Command::TraceStop => panic!("a handler's bug, for the test"),
        Command::Upgrade { program } => Reply::error("not here", program.display().to_string(), ""),
        Command::Ping => Reply::Done,
    }
}

fn start(path: &Path, limits: ServeLimits) -> ControlServer {
    serve_with(path, limits, handler).unwrap()
}

const SHORT: Duration = Duration::from_millis(100);

fn hello(version: u32) -> Vec<u8> {
    [&8u32.to_le_bytes()[..], b"FS2C", &version.to_le_bytes()].concat()
}

/// A raw connection behind the hellos.
fn raw(path: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    // A fault must fail the test, not hang it.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&hello(PROTOCOL_VERSION)).unwrap();
    let mut theirs = [0; 12];
    stream.read_exact(&mut theirs).unwrap();
    assert_eq!(theirs[..], hello(PROTOCOL_VERSION));
    stream
}

/// Everything until the server closes; a reset is an end too.
fn rest(mut stream: UnixStream) -> Vec<u8> {
    let mut out = Vec::new();
    match stream.read_to_end(&mut out) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("the server did not close: {e}"),
    }
    out
}

#[test]
fn each_command_gets_its_answer() {
    let (_dir, path) = place();
    let server = serve(&path, handler).unwrap();
    assert_eq!(server.path(), path);
    let mut client = Client::connect(&path).unwrap();
    for _ in 0..3 {
        let Reply::Status(status) = client.ask(&Command::Status).unwrap() else { panic!("no status") };
        assert_eq!((status.volume.as_str(), status.reads), ("/dev/x", 7));
        assert_eq!(client.ask(&Command::Ping).unwrap(), Reply::Done);
        assert_eq!(client.ask(&Command::Detach).unwrap(), Reply::error("busy", "/dev/x", "unmount it"));
    }
}

/// What a tool of another version may ask.
#[test]
fn whoever_comes_may_ask_for_an_upgrade_and_for_nothing_else() {
    let (_dir, path) = place();
    let _server = serve(&path, |command| match command {
        Command::Upgrade { program } if program == Path::new("/next") => Reply::Done,
        other => handler(other),
    })
    .unwrap();
    for version in [PROTOCOL_VERSION, PROTOCOL_VERSION + 1, 1] {
        let asked = |content: &[u8]| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.write_all(&hello(version)).unwrap();
            stream.write_all(&[&(content.len() as u32).to_le_bytes(), content].concat()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            rest(stream)[12..].to_vec()
        };
        assert_eq!(asked(b"FS2U/next"), b"\x05\0\0\0FS2U\0");
        assert_eq!(asked(b"FS2U/x"), b"\x13\0\0\0FS2U\x01/x: not here; "[..].to_vec());
        let pinged = asked(&[4]);
        assert_eq!(pinged.is_empty(), version != PROTOCOL_VERSION, "{version}: {pinged:?}");
    }
    let mut client = Client::connect_to_any(&path).unwrap();
    assert_eq!(client.pid(), std::process::id());
    assert_eq!(client.upgrade(Path::new("/next")).unwrap(), Ok(()));
    assert_eq!(client.upgrade(Path::new("/x")).unwrap(), Err("/x: not here; ".into()));
    assert_eq!(client.ask(&Command::Ping).unwrap(), Reply::Done, "it goes on");
}

/// One of before says that it is too old.
#[test]
fn a_daemon_of_another_version_is_asked_for_nothing_but_an_upgrade() {
    for (theirs, answers) in [(PROTOCOL_VERSION + 1, true), (8, false)] {
        let (_dir, path) = place();
        let listening = UnixListener::bind(&path).unwrap();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listening.accept().unwrap();
            stream.write_all(&hello(theirs)).unwrap();
            // Who is too old is asked for nothing.
            if answers {
                stream.write_all(b"\x05\0\0\0FS2U\0").unwrap();
            }
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            got
        });
        let mut client = Client::connect_to_any(&path).unwrap();
        assert!(matches!(client.ask(&Command::Ping), Err(ControlError::Version { .. })));
        let upgraded = client.upgrade(Path::new("/next"));
        match answers {
            true => assert_eq!(upgraded.unwrap(), Ok(())),
            false => assert!(matches!(upgraded, Err(ControlError::Version { theirs: 8, .. }))),
        }
        drop(client);
        let sent = daemon.join().unwrap();
        assert_eq!(sent[12..].is_empty(), !answers, "{sent:?}");
    }
}

/// What comes behind an answer that cannot be read answers nothing.
#[test]
fn an_upgrade_is_not_asked_for_again_behind_an_answer_that_cannot_be_read() {
    let (_dir, path) = place();
    let listening = UnixListener::bind(&path).unwrap();
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listening.accept().unwrap();
        let answers = [b"\x05\0\0\0FS2U\x02", b"\x05\0\0\0FS2U\0"].map(|answer| &answer[..]).concat();
        stream.write_all(&[hello(PROTOCOL_VERSION), answers].concat()).unwrap();
        rest(stream)
    });
    let mut client = Client::connect_to_any(&path).unwrap();
    assert!(matches!(client.upgrade(Path::new("/next")), Err(ControlError::Wire { .. })));
    assert!(matches!(client.upgrade(Path::new("/next")), Err(ControlError::Closed { .. })));
    drop(client);
    daemon.join().unwrap();
}

#[test]
fn a_path_of_the_tool_is_made_absolute() {
    let (_dir, path) = place();
    let _server = serve(&path, handler).unwrap();
    let mut client = Client::connect(&path).unwrap();
    let want = std::env::current_dir().unwrap().join("a.trace");
    let got = client.ask(&Command::TraceStart { path: "a.trace".into() }).unwrap();
    assert_eq!(got, Reply::error("no room", want.display().to_string(), ""));
    // Another tool may not do so: the server does not guess.
    let mut other = raw(&path);
    other.write_all(&[3, 0, 0, 0, 2, 1, b'a']).unwrap();
    let mut reply = [0; 5];
    other.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4], 2, "an error");
}

#[test]
fn a_handler_that_panics_costs_one_answer() {
    let (_dir, path) = place();
    let _server = serve(&path, handler).unwrap();
    let mut client = Client::connect(&path).unwrap();
    assert!(matches!(client.ask(&Command::TraceStop).unwrap(), Reply::Error { .. }));
    assert_eq!(client.ask(&Command::Ping).unwrap(), Reply::Done);
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_server() {
    let (_dir, path) = place();
    let server = serve(&path, handler).unwrap();
    assert_eq!(std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    server.shutdown();
    assert!(!path.exists());
    assert!(matches!(Client::connect(&path), Err(ControlError::NoDaemon { .. })));
}

#[test]
fn a_socket_in_use_is_left_alone_and_a_stale_one_replaced() {
    let (_dir, path) = place();
    let first = serve(&path, handler).unwrap();
    assert!(matches!(serve(&path, handler), Err(ServeError::InUse { .. })));
    assert_eq!(Client::connect(&path).unwrap().ask(&Command::Ping).unwrap(), Reply::Done);
    drop(first);
    // A daemon that was killed leaves its socket.
    drop(UnixListener::bind(&path).unwrap());
    let refused = Client::connect(&path).unwrap_err();
    assert!(refused.to_string().contains("nobody listens there any more"), "{refused}");
    let _second = serve(&path, handler).unwrap();
    assert_eq!(Client::connect(&path).unwrap().ask(&Command::Ping).unwrap(), Reply::Done);
}

#[test]
fn only_a_socket_that_nobody_listens_on_is_stale() {
    let (dir, path) = place();
    let server = serve(&path, handler).unwrap();
    assert!(!remove_stale(&path).unwrap(), "it is served");
    assert_eq!(Client::connect(&path).unwrap().ask(&Command::Ping).unwrap(), Reply::Done);
    server.shutdown();
    assert!(!remove_stale(&path).unwrap(), "there is none");
    assert!(!remove_stale(&dir.path().join("no/such/directory")).unwrap());
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(!remove_stale(&file).unwrap() && file.exists());
    drop(UnixListener::bind(&path).unwrap());
    // Its maker may be about to listen: he holds the directory.
    let making = std::fs::File::open(dir.path()).unwrap();
    making.lock().unwrap();
    assert!(remove_stale(&path).is_err() && path.exists());
    drop(making);
    assert!(remove_stale(&path).unwrap() && !path.exists());
}

/// A stopped process listens and accepts nobody: when the kernel keeps no more connections for it, a tool that comes then
/// waited for ever.
#[test]
fn a_daemon_that_accepts_nobody_is_not_waited_for_for_ever() {
    let (_dir, path) = place();
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    socket.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    socket.listen(0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let error = Client::connect_within(&path, SHORT).unwrap_err();
    assert!(matches!(error, ControlError::Timeout { .. }), "{error}");
    assert!(!remove_stale(&path).unwrap());
    assert!(matches!(serve(&path, handler), Err(ServeError::InUse { .. })));
}

#[test]
fn a_file_of_another_kind_is_left_alone() {
    let (_dir, path) = place();
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(serve(&path, handler), Err(ServeError::NotASocket { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

/// Whoever took the path over keeps it.
#[test]
fn a_socket_that_is_no_longer_ours_is_not_removed() {
    let (dir, path) = place();
    let server = serve(&path, handler).unwrap();
    std::fs::rename(&path, dir.path().join("aside")).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    server.shutdown();
    assert!(path.exists());
    drop(other);
}

#[test]
fn errors_of_making_a_socket_name_it() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none").join("control");
    let error = serve(&missing, handler).unwrap_err();
    assert!(error.to_string().contains("none/control"), "{error}");
    let long = dir.path().join("x".repeat(120));
    assert!(matches!(serve(&long, handler), Err(ServeError::Io { .. })));
    assert!(!long.exists());
}

#[test]
fn a_daemon_of_another_version_is_named_with_both_versions() {
    let (_dir, path) = place();
    let listener = UnixListener::bind(&path).unwrap();
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // A later version may say more in its hello.
        let mut hello = hello(77);
        hello[0] += 3;
        stream.write_all(&[&hello[..], b"abc"].concat()).unwrap();
    });
    let error = Client::connect(&path).unwrap_err();
    daemon.join().unwrap();
    assert!(matches!(error, ControlError::Version { ours: PROTOCOL_VERSION, theirs: 77, .. }));
    let text = error.to_string();
    assert!(text.contains("version 77") && text.contains(&format!("version {PROTOCOL_VERSION}")), "{text}");
}

#[test]
fn a_tool_of_another_version_is_told_ours_and_parted_from() {
    let (_dir, path) = place();
    let _server = serve(&path, handler).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&hello(PROTOCOL_VERSION + 1)).unwrap();
    assert_eq!(rest(stream), hello(PROTOCOL_VERSION));
}

#[test]
fn what_is_no_daemon_is_not_believed() {
    let (_dir, path) = place();
    let listener = UnixListener::bind(&path).unwrap();
    let other = std::thread::spawn(move || {
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\x08\0\0\0NOTFS2!!", b"\x08\0\0\0FS"] {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(answer).unwrap();
        }
    });
    assert!(matches!(Client::connect(&path), Err(ControlError::Wire { .. })));
    assert!(matches!(Client::connect(&path), Err(ControlError::Wire { .. })));
    assert!(matches!(Client::connect(&path), Err(ControlError::Closed { .. })));
    other.join().unwrap();
}

#[test]
fn a_daemon_that_keeps_silent_is_not_waited_for_for_ever() {
    let (_dir, path) = place();
    let _listener = UnixListener::bind(&path).unwrap();
    let error = Client::connect_within(&path, SHORT).unwrap_err();
    assert!(matches!(error, ControlError::Timeout { .. }), "{error}");
}

#[test]
fn after_an_error_a_client_says_that_it_is_closed() {
    let (_dir, path) = place();
    let limits = ServeLimits { idle: SHORT, ..ServeLimits::default() };
    let _server = start(&path, limits);
    let mut client = Client::connect(&path).unwrap();
    // A question in time begins the idle limit anew; on a busy machine any pause may be too short.
    let error = (1..100).find_map(|n| {
        std::thread::sleep(SHORT * n * 2);
        client.ask(&Command::Ping).err()
    });
    assert!(matches!(error, Some(ControlError::Closed { .. })), "{error:?}");
    assert!(matches!(client.ask(&Command::Ping), Err(ControlError::Closed { .. })));
}

#[test]
fn garbage_closes_its_own_connection_only() {
    let (_dir, path) = place();
    let _server = serve(&path, handler).unwrap();
    let mut bystander = Client::connect(&path).unwrap();
    let too_long = (COMMAND_BYTES_MAX as u32 + 1).to_le_bytes();
    let garbage: [&[u8]; 5] =
        [b"\x01\0\0\0\xff", b"\0\0\0\0", b"\x02\0\0\0\x04\0", &too_long, b"\xff\xff\xff\xff\xff\xff"];
    for bytes in garbage {
        let mut stream = raw(&path);
        stream.write_all(bytes).unwrap();
        let answer = rest(stream);
        assert_eq!(answer.get(4), Some(&2), "an error comes before the end: {answer:?}");
        assert_eq!(bystander.ask(&Command::Ping).unwrap(), Reply::Done);
    }
    // And before any hello.
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(rest(stream), hello(PROTOCOL_VERSION));
    assert_eq!(bystander.ask(&Command::Ping).unwrap(), Reply::Done);
}

#[test]
fn a_slow_client_is_closed_and_holds_nobody_up() {
    let (_dir, path) = place();
    let limits = ServeLimits { frame: SHORT * 20, ..ServeLimits::default() };
    let _server = start(&path, limits);
    // One that never says hello, and one that stops within a command.
    let silent = UnixStream::connect(&path).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut halting = raw(&path);
    halting.write_all(&[9, 0]).unwrap();
    let mut client = Client::connect(&path).unwrap();
    assert_eq!(client.ask(&Command::Ping).unwrap(), Reply::Done);
    assert_eq!(rest(silent), hello(PROTOCOL_VERSION));
    assert_eq!(rest(halting), b"");
    assert_eq!(client.ask(&Command::Ping).unwrap(), Reply::Done);
}

/// A command in single bytes, within the limit, is a command.
#[test]
fn a_command_may_come_in_pieces() {
    let (_dir, path) = place();
    let _server = serve(&path, handler).unwrap();
    let mut stream = raw(&path);
    for byte in [1, 0, 0, 0, 4, 1, 0, 0, 0, 4] {
        stream.write_all(&[byte]).unwrap();
    }
    let mut replies = [0; 10];
    stream.read_exact(&mut replies).unwrap();
    assert_eq!(replies, [1, 0, 0, 0, 1, 1, 0, 0, 0, 1]);
}

/// The handler runs for all clients at once: each of the sixteen waits in it for the others.
#[test]
fn many_clients_are_answered_at_once_and_one_more_is_told_so() {
    let (_dir, path) = place();
    let clients = ServeLimits::default().clients;
    assert_eq!(clients, 16);
    let together = Arc::new(Barrier::new(clients));
    let answered = Arc::new(AtomicUsize::new(0));
    let (wait, count) = (together.clone(), answered.clone());
    let _server = serve(&path, move |_| {
        if count.load(Ordering::SeqCst) < 16 {
            wait.wait();
        }
        count.fetch_add(1, Ordering::SeqCst);
        Reply::Done
    })
    .unwrap();
    let mut connected: Vec<Client> = (0..clients).map(|_| Client::connect(&path).unwrap()).collect();
    let mut one_more = Client::connect(&path).unwrap();
    let Reply::Error { what, .. } = one_more.ask(&Command::Ping).unwrap() else { panic!("it was served") };
    assert!(what.contains("16 tools"), "{what}");
    std::thread::scope(|s| {
        for client in &mut connected {
            s.spawn(|| assert_eq!(client.ask(&Command::Ping).unwrap(), Reply::Done));
        }
    });
    assert_eq!(answered.load(Ordering::SeqCst), clients);
    // A place that was left is given again, once the server has seen the end of its connection.
    drop(connected);
    let again = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        Client::connect(&path).unwrap().ask(&Command::Ping).unwrap() == Reply::Done
    });
    assert!(again);
}

/// What the detach of a daemon needs: main ends the server as soon as the handler is done, and the
/// answer still arrives.
#[test]
fn an_answer_under_way_survives_the_shutdown() {
    for _ in 0..50 {
        let (_dir, path) = place();
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        let server = serve(&path, move |_| {
            done.send(()).unwrap();
            Reply::Done
        })
        .unwrap();
        let mut client = Client::connect(&path).unwrap();
        let asked = std::thread::spawn(move || client.ask(&Command::Detach));
        is_done.recv().unwrap();
        server.shutdown();
        assert_eq!(asked.join().unwrap().unwrap(), Reply::Done);
    }
}

/// A handler that hangs is not waited for beyond the drain limit.
#[test]
fn a_stuck_handler_does_not_stop_the_shutdown() {
    let (_dir, path) = place();
    let limits = ServeLimits { drain: SHORT, ..ServeLimits::default() };
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    let never = std::sync::Mutex::new(never);
    let (entered, is_in) = std::sync::mpsc::sync_channel(1);
    let server = serve_with(&path, limits, move |_| {
        entered.send(()).unwrap();
        let _ = never.lock().unwrap().recv();
        Reply::Done
    })
    .unwrap();
    let mut client = Client::connect(&path).unwrap();
    let asked = std::thread::spawn(move || client.ask(&Command::Ping));
    is_in.recv().unwrap();
    server.shutdown();
    assert!(matches!(asked.join().unwrap(), Err(ControlError::Closed { .. })));
}
