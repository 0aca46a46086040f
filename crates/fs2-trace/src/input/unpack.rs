//! Decompression, by the first bytes. Streaming: a decoder holds its window and no more, so a
//! small file that unpacks to a large one costs time and not memory.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use super::{BoxRead, peek};

/// Bytes looked at: xz's magic is the longest.
const MAGIC_BYTES: usize = 6;

/// Most memory an xz stream may ask for: `xz -9` asks for 65 MiB.
const XZ_MEMORY_MAX: u64 = 128 << 20;

/// Largest zstd window, as a power of two: 128 MiB, what `zstd` itself accepts without `--long`.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// How an input is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, one member or several.
    Gzip,
    /// bzip2, one stream or several.
    Bzip2,
    /// xz, one stream or several.
    Xz,
    /// zstd, one frame or several.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
        })
    }
}

fn compression(head: &[u8]) -> Compression {
    match head {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Compression::Bzip2,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        _ => Compression::None,
    }
}

/// The bytes within, and how they were packed.
///
/// # Errors
/// What `input` says, or a decoder that cannot be made.
pub fn unpack(input: BoxRead) -> io::Result<(Compression, BoxRead)> {
    let (head, input) = peek(input, MAGIC_BYTES)?;
    let kind = compression(&head);
    let plain: BoxRead = match kind {
        Compression::None => input,
        Compression::Gzip => Box::new(Members(Some(GzDecoder::new(BufReader::new(input))))),
        Compression::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(input)),
        Compression::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY_MAX, CONCATENATED)?;
            Box::new(liblzma::read::XzDecoder::new_stream(input, stream))
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(input)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
    };
    Ok((kind, Box::new(Named { kind, plain })))
}

/// gzip's members, one behind the other. Zeros behind the last one fill a tape's block, and are no member, as for gzip(1).
struct Members(Option<GzDecoder<BufReader<BoxRead>>>);

impl Read for Members {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            // Also where the zeros behind it could not be read at once: an ended member ends again.
            let n = member.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            let more = skip_zeros(member.get_mut())?;
            self.0 = self.0.take().filter(|_| more).map(|ended| GzDecoder::new(ended.into_inner()));
        }
        Ok(0)
    }
}

/// Whether anything is left behind them.
fn skip_zeros(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok(false);
        }
        let zeros = bytes.iter().take_while(|&&b| b == 0).count();
        let all = zeros == bytes.len();
        input.consume(zeros);
        if !all {
            return Ok(true);
        }
    }
}

/// Says in its errors what was being unpacked.
struct Named {
    kind: Compression,
    plain: BoxRead,
}

impl Read for Named {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.plain.read(buf).map_err(|e| match self.kind {
            Compression::None => e,
            // The device's own error, which keeps its number.
            _ if e.kind() == io::ErrorKind::Interrupted || e.raw_os_error().is_some() => e,
            kind => io::Error::new(e.kind(), format!("{kind}: {e}")),
        })
    }
}
