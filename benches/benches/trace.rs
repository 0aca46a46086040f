//! How fast traces are read: records or lines a second, from memory.
//!
//! `cargo bench -p fs2-benches --bench trace`. What is measured is the time this thread ran, not the time
//! that passed, so that other work on the machine shows little. `FS2_BENCH_RECORDS=10000000` streams ten
//! million.
#![allow(missing_docs)]

use std::io::{Cursor, Write};
use std::sync::Arc;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fs2_block::{Extent, Nanos, Op};
use fs2_trace::synth::{Shape, Workload};
use fs2_trace::{ArrivalEvent, BlkparseWriter, Header, OpenOptions, Record, Summariser, Writer, open};

/// Time that the calling thread ran, in nanoseconds, as the kernel counts it.
struct Running;

fn running_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

impl Measurement for Running {
    type Intermediate = u64;
    type Value = std::time::Duration;

    fn start(&self) -> u64 {
        running_ns()
    }

    fn end(&self, start: u64) -> Self::Value {
        std::time::Duration::from_nanos(running_ns() - start)
    }

    fn add(&self, a: &Self::Value, b: &Self::Value) -> Self::Value {
        *a + *b
    }

    fn zero(&self) -> Self::Value {
        Self::Value::ZERO
    }

    fn to_f64(&self, value: &Self::Value) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn count() -> u64 {
    std::env::var("FS2_BENCH_RECORDS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000)
}

fn records() -> impl Iterator<Item = Record> {
    let shape = Shape { requests: count(), ..Shape::default() };
    Workload::Zipf { files: 100_000, write_permille: 300 }
        .generate(shape, 1)
        .enumerate()
        .map(|(i, r)| Record { service: Some(Nanos(100_000 + i as u64 % 1000 * 7000)), ..r })
}

fn lines(line: impl Fn(&mut Vec<u8>, &Record)) -> Vec<u8> {
    let mut text = Vec::new();
    records().for_each(|r| line(&mut text, &r));
    text
}

fn letter(r: &Record) -> char {
    if r.op == Op::Read { 'R' } else { 'W' }
}

fn traces() -> Vec<(&'static str, Vec<u8>)> {
    let header = Header { volume_bytes: 1 << 40, block_size: None, start_unix_ns: 0 };
    let mut container = Writer::new(Vec::new(), header).unwrap();
    records().for_each(|r| container.push(&r).unwrap());
    let mut blkparse = BlkparseWriter::new(Vec::new());
    records().for_each(|r| blkparse.push(&r).unwrap());
    let sectors = |e: Extent| (e.sector().0, e.sectors());
    let seconds = |r: &Record| (r.at.0 / 1_000_000_000, r.at.0 % 1_000_000_000);
    vec![
        ("container", container.finish().unwrap()),
        ("blkparse, D and C", blkparse.finish().unwrap()),
        (
            "blkparse, short form, D",
            lines(|text, r| {
                let ((s, ns), (sector, n)) = (seconds(r), sectors(r.extent));
                writeln!(text, "{s}.{:06} D {} {sector} {n} 4711 postgres", ns / 1000, letter(r)).unwrap();
            }),
        ),
        (
            "spc",
            lines(|text, r| {
                let ((s, ns), (sector, _)) = (seconds(r), sectors(r.extent));
                writeln!(text, "0,{sector},{},{},{s}.{:06}", r.extent.len(), letter(r), ns / 1000).unwrap();
            }),
        ),
        (
            "msr",
            lines(|text, r| {
                let op = if r.op == Op::Read { "Read" } else { "Write" };
                let (time, e) = (128_166_372_003_061_629 + r.at.0 / 100, r.extent);
                writeln!(text, "{time},hm,1,{op},{},{},{}", e.offset(), e.len(), 1331).unwrap();
            }),
        ),
        (
            "blktrace 7, D and C",
            lines(|text, r| {
                let kind = 1_u32 << if r.op == Op::Read { 16 } else { 17 };
                for (action, at) in [(7 | 1 << 22, r.at.0), (8 | 1 << 23, r.at.0 + 50_000)] {
                    text.extend_from_slice(&0x6561_7407_u32.to_le_bytes());
                    text.extend_from_slice(&1_u32.to_le_bytes());
                    text.extend_from_slice(&at.to_le_bytes());
                    text.extend_from_slice(&r.extent.sector().0.to_le_bytes());
                    text.extend_from_slice(&(r.extent.len() as u32).to_le_bytes());
                    text.extend_from_slice(&(action | kind).to_le_bytes());
                    [4711_u32, 8 << 20, 0, 0].iter().for_each(|w| text.extend_from_slice(&w.to_le_bytes()));
                }
            }),
        ),
    ]
}

/// Bytes that several readers share.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn read(bytes: &Arc<Vec<u8>>, mut each: impl FnMut(Record)) -> u64 {
    let input = ("bench".to_owned(), Box::new(Cursor::new(Shared(bytes.clone()))) as Box<_>);
    let options = OpenOptions { event: Some(ArrivalEvent::Issue), ..OpenOptions::default() };
    let mut n = 0;
    for record in open(vec![input], options).unwrap() {
        each(record.unwrap());
        n += 1;
    }
    n
}

fn readers(c: &mut Criterion<Running>) {
    let mut group = c.benchmark_group("requests read");
    group.sample_size(10);
    for (name, bytes) in traces() {
        let bytes = Arc::new(bytes);
        // Lines where a trace has two for a request.
        let each = if name.ends_with("and C") { 2 } else { 1 };
        group.throughput(Throughput::Elements(count() * each));
        let mut sum = 0;
        group.bench_function(name, |b| {
            b.iter(|| assert_eq!(read(&bytes, |r| sum ^= r.extent.offset()), count()));
        });
    }
    group.finish();
    let mut group = c.benchmark_group("made up and summed up");
    group.sample_size(10).throughput(Throughput::Elements(count()));
    group.bench_function("made up", |b| b.iter(|| records().map(|r| r.extent.offset()).max()));
    group.bench_function("summary", |b| {
        b.iter(|| {
            let mut summariser = Summariser::new();
            records().for_each(|r| summariser.add(&r));
            summariser.finish()
        });
    });
    group.finish();
}

criterion_group!(name = benches; config = Criterion::default().with_measurement(Running); targets = readers);
criterion_main!(benches);
