//! The server over real sockets: what is asked, and clients that are slow, many or hostile.

use std::net::TcpStream;

use super::*;

/// As long as a test may take.
const LONG: Duration = Duration::from_secs(600);

fn unix(patience: Duration) -> (tempfile::TempDir, Server, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics");
    let place: Place = format!("unix:{}", path.display()).parse().unwrap();
    let server = Bound::new(&place, false).unwrap();
    let server = server.serve_within(patience, || "fs2_info 1\n".repeat(100_000)).unwrap();
    (dir, server, path)
}

fn all(mut stream: impl Read + Write, ask: &[u8]) -> String {
    // A server that has refused already may have closed.
    let _ = stream.write_all(ask);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn metrics_over_a_unix_socket() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, server, path) = unix(LONG);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let answer = all(UnixStream::connect(&path).unwrap(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Length: 1100000\r\n"), "{head}");
    assert_eq!(body.len(), 1_100_000);
    for (ask, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (b"\x16\x03\x01\x02\x00", "400 Bad Request"),
        (&[b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 1 << 20]].concat(), "431 Request"),
    ] {
        let answer = all(UnixStream::connect(&path).unwrap(), ask);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{status}: {answer}");
    }
    drop(server);
    assert!(!path.exists(), "the socket goes with its server");
}

#[test]
fn metrics_over_tcp_stay_on_this_machine() {
    let server =
        Bound::new(&"127.0.0.1:0".parse().unwrap(), false).unwrap().serve(|| "x 1\n".into()).unwrap();
    let answer = all(TcpStream::connect(server.address()).unwrap(), b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\nx 1\n"), "{answer}");
    let refused = Bound::new(&"0.0.0.0:0".parse().unwrap(), false).err().expect("other machines reach it");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    assert!(refused.to_string().contains("other machines"), "{refused}");
    assert!(Bound::new(&"0.0.0.0:0".parse().unwrap(), true).is_ok());
}

/// Clients that say nothing hold all places; one more is sent away at once, and when one of them goes its place
/// is free.
#[test]
fn silent_clients_keep_nobody_out_for_long() {
    let (_dir, server, path) = unix(LONG);
    let mut silent: Vec<_> = (0..CONNECTIONS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
    while server.shared.connections.load(Ordering::SeqCst) < CONNECTIONS_MAX {
        std::thread::yield_now();
    }
    assert_eq!(all(UnixStream::connect(&path).unwrap(), b"GET /metrics HTTP/1.1\r\n\r\n"), "");
    silent.pop();
    loop {
        let answer = all(UnixStream::connect(&path).unwrap(), b"GET /metrics HTTP/1.1\r\n\r\n");
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        assert_eq!(answer, "");
    }
}

/// Who says nothing, or nothing more, or takes no answer, is left after a while.
#[test]
fn slow_clients_are_left() {
    let (_dir, server, path) = unix(Duration::from_millis(50));
    for begin in [&b""[..], b"GET /metr"] {
        assert_eq!(all(UnixStream::connect(&path).unwrap(), begin), "");
    }
    // The answer is longer than what a socket holds, and nobody reads it.
    let mut deaf = UnixStream::connect(&path).unwrap();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    // It is being answered.
    deaf.read_exact(&mut [0]).unwrap();
    while server.shared.connections.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    let mut rest = Vec::new();
    let _ = deaf.read_to_end(&mut rest);
    assert!(rest.len() < 1_100_000, "{} bytes", rest.len());
}

#[test]
fn a_place_is_what_it_says() {
    for text in ["unix:/run/fs2/metrics", "127.0.0.1:9835", "[::1]:9835"] {
        assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
    }
    assert_eq!("tcp:127.0.0.1:1".parse::<Place>().unwrap().to_string(), "127.0.0.1:1");
    for bad in ["", "unix:", "9835", "localhost:9835", "127.0.0.1", "http://127.0.0.1:1/"] {
        assert!(bad.parse::<Place>().is_err(), "{bad}");
    }
}
