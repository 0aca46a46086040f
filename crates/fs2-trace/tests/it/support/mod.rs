//! The samples, and ways to open them.

use std::path::Path;

use fs2_trace::{BoxRead, Format, OpenOptions, Record, Stream, TraceError};

/// The samples: files of one trace, and their format.
pub(crate) const SAMPLES: &[(&[&str], Format)] = &[
    (&["blktrace7.0.bin", "blktrace7.1.bin"], Format::Blktrace),
    (&["blktrace7-be.bin"], Format::Blktrace),
    (&["blktrace8.bin"], Format::Blktrace),
    (&["blktrace8-be.bin"], Format::Blktrace),
    (&["blkparse.txt"], Format::Blkparse),
    (&["blkparse-short.txt"], Format::Blkparse),
    (&["spc.csv"], Format::Spc),
    (&["msr.csv"], Format::Msr),
    (&["fiu.txt"], Format::Fiu),
    (&["disksim.txt"], Format::Disksim),
    (&["disksim-validate.txt"], Format::DisksimValidate),
    (&["fio2.iolog"], Format::Fio),
    (&["fio3.iolog"], Format::Fio),
    (&["blkreplay.load"], Format::Blkreplay),
    (&["vscsi1.bin"], Format::Vscsi1),
    (&["vscsi2.bin"], Format::Vscsi2),
    (&["srt13.bin"], Format::Srt),
];

/// A sample's bytes.
pub(crate) fn sample(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)).unwrap()
}

/// Bytes as inputs with names.
pub(crate) fn inputs<N: AsRef<str>>(inputs: &[(N, Vec<u8>)]) -> Vec<(String, BoxRead)> {
    let boxed = |bytes: &Vec<u8>| Box::new(std::io::Cursor::new(bytes.clone())) as BoxRead;
    inputs.iter().map(|(name, bytes)| (name.as_ref().to_owned(), boxed(bytes))).collect()
}

/// Opens samples.
pub(crate) fn open(files: &[&str], options: OpenOptions) -> Result<Stream, TraceError> {
    let files: Vec<_> = files.iter().map(|name| (*name, sample(name))).collect();
    fs2_trace::open(inputs(&files), options)
}

/// All requests, of which none is an error.
pub(crate) fn all(stream: Stream) -> Vec<Record> {
    stream.map(|r| r.unwrap_or_else(|e| panic!("{e}"))).collect()
}

/// What the first error says, on opening or while reading.
pub(crate) fn failure(opened: Result<Stream, TraceError>) -> String {
    match opened {
        Err(e) => e.to_string(),
        Ok(mut stream) => stream.find_map(Result::err).expect("an error").to_string(),
    }
}
