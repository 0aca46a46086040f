//! A server of NBD that does nothing but its system calls: what a server on a unix socket costs at least that receives,
//! reads or writes the image through the page cache, and answers. No limits, no order, no care for what a client may do:
//! a peer of `benches/peers/run.sh`, not for use.
//!
//! `bare_nbd IMAGE SOCKET`: serves each connection in a thread of its own until it is killed.
use nix::sys::socket::{setsockopt, sockopt};
use std::fs::File;
use std::io::{self, Error, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

/// Received at a time at most, and the largest request.
const AT_ONCE: usize = 512 << 10;
/// Bytes of an answer without data.
const ANSWER: usize = 16;
/// Bytes of a request without its payload.
const HEADER: usize = 28;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: [u8; 4] = 0x6744_6698u32.to_be_bytes();

fn main() -> io::Result<()> {
    let [image, path] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err(Error::other("usage: bare_nbd IMAGE SOCKET"));
    };
    let image = Arc::new(File::options().read(true).write(true).open(image)?);
    for client in UnixListener::bind(path)?.incoming() {
        let (client, image) = (client?, image.clone());
        std::thread::spawn(move || agree(&client, &image).and_then(|()| serve(&client, &image)));
    }
    Ok(())
}

/// Fixed newstyle, no extension taken.
fn agree(mut client: &UnixStream, image: &File) -> io::Result<()> {
    setsockopt(&client, sockopt::SndBuf, &(1 << 20))?;
    client.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    client.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; 16];
        client.read_exact(&mut head)?;
        let (option, len) = (word(&head, 8), word(&head, 12));
        let mut data = vec![0; len as usize];
        client.read_exact(&mut data)?;
        let mut answer = |kind: u32, data: &[u8]| {
            let fields = [option, kind, data.len() as u32].map(u32::to_be_bytes).concat();
            client.write_all(&[&0x0003_e889_0455_65a9u64.to_be_bytes(), &fields[..], data].concat())
        };
        match option {
            // NBD_OPT_INFO and NBD_OPT_GO
            6 | 7 => {
                // NBD_INFO_EXPORT: the size, and NBD_FLAG_HAS_FLAGS with NBD_FLAG_CAN_MULTI_CONN.
                let size = image.metadata()?.len().to_be_bytes();
                answer(3, &[&[0; 2], &size[..], &0x0101u16.to_be_bytes()].concat())?;
                answer(1, &[])?;
                if option == 7 {
                    return Ok(());
                }
            }
            _ => answer(0x8000_0001, &[])?,
        }
    }
}

fn serve(mut client: &UnixStream, image: &File) -> io::Result<()> {
    let mut input = vec![0; AT_ONCE + HEADER];
    let mut output = vec![0; 2 * AT_ONCE + ANSWER];
    let (mut filled, mut ready) = (0, 0);
    loop {
        match client.read(&mut input[filled..])? {
            0 => return Ok(()),
            n => filled += n,
        }
        let mut at = 0;
        while filled - at >= HEADER {
            let request = &input[at..filled];
            let (kind, len) = (word(request, 4) & 0xffff, word(request, 24) as usize);
            let offset = u64::from(word(request, 16)) << 32 | u64::from(word(request, 20));
            let payload = if kind == 1 { len } else { 0 };
            if word(request, 0) != REQUEST_MAGIC || len > AT_ONCE || kind == 2 {
                return Ok(());
            }
            if request.len() < HEADER + payload {
                break;
            }
            let answer = &mut output[ready..];
            answer[..4].copy_from_slice(&REPLY_MAGIC);
            answer[4..8].fill(0);
            answer[8..ANSWER].copy_from_slice(&request[8..16]);
            ready += ANSWER;
            match kind {
                0 => {
                    image.read_exact_at(&mut output[ready..ready + len], offset)?;
                    ready += len;
                }
                1 => image.write_all_at(&request[HEADER..HEADER + len], offset)?,
                _ => {}
            }
            at += HEADER + payload;
            if ready >= AT_ONCE {
                client.write_all(&output[..ready])?;
                ready = 0;
            }
        }
        client.write_all(&output[..ready])?;
        ready = 0;
        input.copy_within(at..filled, 0);
        filled -= at;
    }
}

/// Big-endian, at `at`.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
