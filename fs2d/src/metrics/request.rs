//! What a scraper asks: the head of an HTTP/1 request, foreign bytes, without a socket.

/// The longest head that is read, in bytes. Prometheus sends about 300; a guess with much room.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// Header lines that a head may have. Prometheus sends six.
const HEADERS_MAX: usize = 64;

/// What some bytes ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The head goes on.
    More,
    /// `GET /metrics`.
    Metrics,
    /// Something that is refused.
    Refused(Refusal),
}

/// Why a request gets no metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no HTTP/1 request.
    Malformed,
    /// It is not for `/metrics`.
    NotFound,
    /// It is no GET.
    Method,
    /// Its head is longer than [`HEAD_BYTES_MAX`], or has too many lines.
    TooLong,
}

impl Refusal {
    /// The status line's number and words.
    pub fn status(self) -> &'static str {
        match self {
            Refusal::Malformed => "400 Bad Request",
            Refusal::NotFound => "404 Not Found",
            Refusal::Method => "405 Method Not Allowed",
            Refusal::TooLong => "431 Request Header Fields Too Large",
        }
    }
}

/// What the bytes that came so far ask. As long as it says [`Asked::More`] they are at most [`HEAD_BYTES_MAX`].
pub fn asked(head: &[u8]) -> Asked {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) if head.len() >= HEAD_BYTES_MAX => Asked::Refused(Refusal::TooLong),
        Ok(httparse::Status::Partial) => Asked::More,
        Err(httparse::Error::TooManyHeaders) => Asked::Refused(Refusal::TooLong),
        Err(_) => Asked::Refused(Refusal::Malformed),
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default();
            match (path.split('?').next(), request.method) {
                (Some("/metrics"), Some("GET")) => Asked::Metrics,
                (Some("/metrics"), _) => Asked::Refused(Refusal::Method),
                _ => Asked::Refused(Refusal::NotFound),
            }
        }
    }
}

/// For fuzzing: takes `bytes` as they would come from a client, in pieces; true where they ask for metrics.
///
/// # Panics
/// Where the pieces are understood otherwise than the whole, or a head without end is not refused: a bug.
pub fn fuzz_request(bytes: &[u8]) -> bool {
    let mut step = 1;
    let mut end = 0;
    while end < bytes.len() {
        end = (end + step).min(bytes.len());
        step = step % 7 + 2;
        let asked = asked(&bytes[..end]);
        if asked != Asked::More {
            assert_eq!(asked, self::asked(&bytes[..end]), "the same bytes, the same answer");
            return asked == Asked::Metrics;
        }
        assert!(end < HEAD_BYTES_MAX, "a head without end is refused");
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_metrics_are_given() {
        let ask = |line: &str| asked(format!("{line}\r\nHost: x\r\n\r\n").as_bytes());
        assert_eq!(ask("GET /metrics HTTP/1.1"), Asked::Metrics);
        assert_eq!(ask("GET /metrics HTTP/1.0"), Asked::Metrics);
        assert_eq!(ask("GET /metrics?a=b HTTP/1.1"), Asked::Metrics);
        for path in ["/", "/metrics/", "/metrics2", "*", "http://x/metrics", "/%6detrics", "//metrics"] {
            assert_eq!(ask(&format!("GET {path} HTTP/1.1")), Asked::Refused(Refusal::NotFound), "{path}");
        }
        for method in ["POST", "HEAD", "get", "DELETE"] {
            assert_eq!(
                ask(&format!("{method} /metrics HTTP/1.1")),
                Asked::Refused(Refusal::Method),
                "{method}"
            );
        }
        for line in ["GET /metrics HTTP/2.0", "GET /metrics", "\0", "GET  HTTP/1.1", "G\u{e9}T / HTTP/1.1"] {
            assert_eq!(ask(line), Asked::Refused(Refusal::Malformed), "{line:?}");
        }
    }

    #[test]
    fn a_head_has_an_end() {
        let mut head = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
        assert_eq!(asked(&head), Asked::More);
        head.resize(HEAD_BYTES_MAX - 1, b'x');
        assert_eq!(asked(&head), Asked::More);
        head.push(b'x');
        assert_eq!(asked(&head), Asked::Refused(Refusal::TooLong));
        let lines = "A: b\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(
            asked(format!("GET /metrics HTTP/1.1\r\n{lines}\r\n").as_bytes()),
            Asked::Refused(Refusal::TooLong)
        );
    }

    proptest! {
        #[test]
        fn garbage_is_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            fuzz_request(&bytes);
        }

        /// However a good request is cut, it is not understood before its end, and then it is.
        #[test]
        fn pieces_are_as_good_as_the_whole(names in proptest::collection::vec("[A-Za-z-]{1,20}", 0..20)) {
            let lines: String = names.iter().map(|n| format!("{n}: {n}\r\n")).collect();
            let head = format!("GET /metrics HTTP/1.1\r\n{lines}\r\n").into_bytes();
            for end in 0..head.len() {
                prop_assert_eq!(asked(&head[..end]), Asked::More);
            }
            prop_assert_eq!(asked(&head), Asked::Metrics);
            prop_assert!(fuzz_request(&head));
        }
    }
}
