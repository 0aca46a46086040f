//! Writes the first seeds of each target into a directory: `cargo run -p fs2-fuzz --example seeds --
//! fuzz/seeds`. What fuzzers found worth keeping lies beside them under other names.

use std::path::Path;

use fs2_block::{BlockNo, BlockRange, BlockSize, Extent, Nanos, Op};
use fs2_table::{BitmapChecksums, Header, Mark, Replica, ReplicaTable, Token, Trust};
use fs2_trace::{Record, Writer};

fn main() -> std::io::Result<()> {
    let dir = std::env::args().nth(1).expect("the directory to write to");
    let mut seeds: Vec<(&str, String, Vec<u8>)> = Vec::new();
    nbd(&mut |name, bytes| seeds.push(("nbd_bytes", name.into(), bytes)));
    fuse(&mut |name, bytes| seeds.push(("fuse_requests", name.into(), bytes)));
    control(&mut |name, bytes| seeds.push(("control_frames", name.into(), bytes)));
    table(&mut |name, bytes| seeds.push(("table_bytes", name.into(), bytes)));
    trace(&mut |name, bytes| seeds.push(("trace_bytes", name.into(), bytes)));
    ext2(&mut |name, bytes| seeds.push(("ext2_image", name, bytes)));
    engine(&mut |name, bytes| seeds.push(("engine_events", name, bytes)));
    disksim(&mut |name, bytes| seeds.push(("disksim_specs", name.into(), bytes)));
    hand_over(&mut |name, bytes| seeds.push(("hand_over", name, bytes)));
    script(&mut |name, bytes| seeds.push(("wml_script", name.into(), bytes)));
    for (target, name, bytes) in seeds {
        let dir = Path::new(&dir).join(target);
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(name), bytes)?;
    }
    Ok(())
}

/// The first byte says into how large pieces the stream is cut.
fn nbd(add: &mut dyn FnMut(&str, Vec<u8>)) {
    let option = |number: u32, data: &[u8]| -> Vec<u8> {
        [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let request = |flags: u16, command: u16, offset: u64, len: u32| -> Vec<u8> {
        let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&command.to_be_bytes());
        bytes.extend_from_slice(&7u64.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes
    };
    let hello = [0, 0, 0, 3];
    let go = option(7, &[0; 6]);
    let name = option(1, b"");
    let meta =
        [&0u32.to_be_bytes()[..], &1u32.to_be_bytes(), &15u32.to_be_bytes(), b"base:allocation"].concat();
    let requests = [
        request(0, 0, 0, 4096),
        request(1, 1, 4096, 8),
        vec![1; 8],
        request(0, 3, 0, 0),
        request(2, 6, 1 << 20, 65536),
        request(0, 4, 1 << 21, 4096),
        request(0, 7, 0, 4096),
        request(0, 2, 0, 0),
    ];
    add("go", [&[255], &hello[..], &option(8, b""), &go, &requests.concat()].concat());
    add("export-name", [&[0], &hello[..], &name, &requests.concat()].concat());
    add("old-client", [&[3], &[0, 0, 0, 1][..], &name, &requests.concat()].concat());
    add(
        "list-info-abort",
        [&[9], &hello[..], &option(3, b""), &option(6, &[0; 6]), &option(2, b"")].concat(),
    );
    let unknown = [option(99, b"x"), option(5, b""), option(10, &meta), option(9, &[0; 8])].concat();
    add("meta", [&[7], &hello[..], &option(8, b""), &unknown, &go, &request(0, 7, 0, 4096)].concat());
    let bad = [request(0, 99, 0, 1), request(0xffff, 0, u64::MAX, u32::MAX), request(0, 1, 4 << 20, 1)];
    add("bad-requests", [&[1], &hello[..], &go, &bad.concat()].concat());
    add("long-option", [&[2], &hello[..], b"IHAVEOPT\0\0\0\x07\0\0\x18\0", &[0; 0x1800]].concat());
}

/// The first byte says what serves; before each packet stands its length.
fn fuse(add: &mut dyn FnMut(&str, Vec<u8>)) {
    let packet = |opcode: u32, node: u64, behind: &[u8]| -> Vec<u8> {
        let header =
            [&0u32.to_le_bytes()[..], &opcode.to_le_bytes(), &[0; 8], &node.to_le_bytes(), &[0; 16]].concat();
        let len = (header.len() + behind.len()) as u16;
        [&len.to_le_bytes()[..], &header, behind].concat()
    };
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let io = |offset: u64, size: u32, flags: u64| words(&[1, offset, size.into(), 0, flags]);
    let init = |minor: u64| {
        packet(26, 0, &[words(&[minor << 32 | 7, 0xffff_ffff << 32 | 1 << 20]), vec![0; 48]].concat())
    };
    let write =
        |offset: u64, len: usize| packet(16, 2, &[io(offset, len as u32, 0x1000), vec![7; len]].concat());
    let read = |offset: u64, size: u32| packet(15, 2, &io(offset, size, 0));
    let names = [
        packet(1, 1, b"volume\0"),
        packet(1, 1, b"none\0"),
        packet(14, 2, &[0; 8]),
        packet(3, 2, &[0; 16]),
        packet(4, 2, &[&words(&[8, 0, 4096]), &vec![0; 64][..]].concat()),
        packet(17, 1, b""),
        packet(28, 1, &io(0, 4096, 0)),
        packet(28, 1, &io(1, 40, 0)),
        packet(18, 2, &[0; 24]),
        packet(2, 2, &[0; 8]),
        packet(42, 0, &[0; 24]),
        packet(99, 2, b""),
    ];
    let blocks = [
        read(0, 4096),
        write(4096, 4096),
        read(126 << 10, 4096),
        write(15 << 10, 512),
        write(128 << 10, 1),
        write(8192, 9000),
        packet(20, 2, &[0; 16]),
        packet(43, 2, &words(&[1, 4096, 8192, 3])),
        packet(43, 2, &words(&[1, 0, 512, 0x10])),
        packet(46, 2, &words(&[1, 100, 3])),
        packet(46, 2, &words(&[1, 101, 4])),
        read(u64::MAX, u32::MAX),
    ];
    add("names", [&[0][..], &init(31), &names.concat(), &packet(38, 0, b"")].concat());
    add("blocks", [&[0][..], &init(40), &blocks.concat()].concat());
    let many = blocks.concat().repeat(3);
    add("from-memory", [&[0x11][..], &many].concat());
    add("late", [&[0x15][..], &many].concat());
    add("all-late", [&[0x13][..], &many].concat());
    add("old-kernel", [&[0][..], &init(22)].concat());
    let newer = packet(26, 0, &[words(&[8, 0]), vec![0; 48]].concat());
    add("new-kernel", [&[0][..], &newer, &init(31), &read(0, 512)].concat());
    let mut short = packet(16, 2, &io(0, 4096, 0));
    short[1] |= 0x80;
    add("lengths", [&[0x10][..], &packet(15, 2, &[0; 7]), &short, &[20, 0], &[1; 20]].concat());
}

/// The small drive of `fs2-disk`'s tests, in pieces and whole.
fn disksim(add: &mut dyn FnMut(&str, Vec<u8>)) {
    let specs = include_str!("../../fs2-disk/tests/drives/small.diskspecs");
    let model = include_str!("../../fs2-disk/tests/drives/small.model");
    let curve = include_str!("../../fs2-disk/tests/drives/small.seek");
    let join = |specs: &str, model: &str, curve: &str| [specs, model, curve].join("\0").into_bytes();
    add("three-files", join(specs, model, curve));
    add("one-file", join(&specs.replace("source small.model", model), "", curve));
    let named = format!("{model}\n{}", specs.replace("source small.model", "SMALL_model"));
    let with_bus = format!(
        "{named}\ndisksim_bus B {{ Read block transfer time = 0.1, Write block transfer time = 0.2 }}\n\
         instantiate [ d0 ] as SMALL\ntopology disksim_iodriver d [ disksim_bus b [] ]\n"
    );
    add("model-by-name", join(&with_bus, "", curve));
    let three = "Single cylinder seek time = 1.0, Average seek time = 5.0, Full strobe seek time = 9.0";
    let hpl = "HPL seek equation values = [ 40, 1.0, 0.5, 2.0, 0.05, 1.0 ]";
    let ten = "First ten seek times = [ 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9 ]";
    for (kind, parameters) in [
        ("constant", "Constant seek time = 5.0".to_owned()),
        ("linear", three.to_owned()),
        ("curve", three.to_owned()),
        ("hpl", hpl.to_owned()),
        ("hplplus10", format!("{hpl}, {ten}")),
    ] {
        let model = model
            .replace("Seek type = extracted", &format!("Seek type = {kind}"))
            .replace("Full seek curve = small.seek", &parameters);
        add(kind, join(specs, &model, ""));
    }
    add("many-cylinders", join(specs, &model.replace("number = 59", "number = 1048575"), curve));
    add("deep", join(&format!("disksim_disk D {{ Model = {}", "[ ".repeat(40)), "", ""));
}

fn control(add: &mut dyn FnMut(&str, Vec<u8>)) {
    let frame = |content: &[u8]| [&(content.len() as u32).to_le_bytes()[..], content].concat();
    let commands =
        [frame(b"FS2C\x01\0\0\0"), frame(&[0]), frame(&[1]), frame(b"\x02\x02/t"), frame(&[3]), frame(&[4])];
    add("commands", commands.concat());
    add("later-version", frame(b"FS2C\x02\0\0\0more"));
    add("error", [frame(&[1]), frame(b"\x02\x01a\x01b\0")].concat());
    let status = [
        &[0, 0, 0, 0, 0, 0, 6][..],
        b"active",
        &[0; 12],
        &[0; 17],
        &[0; 6],
        b"\x04none\0\x04none",
        &[0; 8],
        &[0; 2],
        &[7, 0],
    ];
    add("status", frame(&status.concat()));
    add("claims-much", frame(&[2, 253, 255, 255, 255, 255, 255, 255, 255, 127]));
    add("claims-what-may-be", frame(&[2, 252, 0, 0, 14, 0, 1, 2, 3]));
    add("not-a-path", frame(b"\x02\x04/\xff\xfe\0"));
}

fn table(add: &mut dyn FnMut(&str, Vec<u8>)) {
    let mut table = ReplicaTable::new(1000, 2);
    for n in 0..70 {
        let (original, replica) = (BlockNo(100 + n), BlockNo(1100 + n));
        // Some are refused: that is as good.
        let _ = table.insert(Replica { original, replica, hash: n.into(), trust: Trust::Verified });
    }
    table.remove_by_replica(BlockRange::new(1120, 1130));
    let token = Token::new([3; 1024], &[4; 64], &[]);
    let sums = BitmapChecksums(vec![1, 2, 3]);
    let pages_end = Some(table.pages_end());
    let mark = Some(Box::new(Mark { token, bitmap_checksums_hash: sums.hash(7), pages_end }));
    let first = Header::new(7, BlockSize::B1024, 16);
    let second = first.next(mark);
    let slots = [first.encode(), second.encode()].concat();
    let pages: Vec<u8> =
        (0..2).flat_map(|n| table.encode_page(n, 2, 7, true).bytes.to_vec()).collect::<Vec<u8>>();
    let short = |bytes: &[u8]| -> Vec<u8> {
        let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |n| n + 1);
        bytes[..end].to_vec()
    };
    for (name, head) in [("as-written", 8u8), ("placed", 0b1111)] {
        add(name, [&[head], &slots[..], &short(&pages)].concat());
    }
    add("headers", [&[1], &short(&slots)[..]].concat());
    // Small ones change more of what counts: a page of three entries.
    let mut few = ReplicaTable::new(1000, 1);
    for (o, r) in [(100, 1100), (101, 1101), (500, 1600)] {
        let entry = Replica { original: BlockNo(o), replica: BlockNo(r), hash: 9, trust: Trust::Verified };
        few.insert(entry).expect("there is room");
    }
    let page = |n| short(&few.encode_page(n, 1, 7, true).bytes[..]);
    let one = (0..4).map(page).find(|p| !p.is_empty()).expect("a page with entries");
    add("few", [&[0b1111], &vec![0; 8192][..], &one].concat());
    let mut twice = one.clone();
    twice.resize(4096, 0);
    add("twice", [&[0b1011], &vec![0; 8192][..], &twice, &one].concat());
}

fn trace(add: &mut dyn FnMut(&str, Vec<u8>)) {
    let header = fs2_trace::Header { volume_bytes: 1 << 30, block_size: None, start_unix_ns: 5 };
    let write = |n: u64, flush: u64| -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), header).expect("a vector takes all");
        for i in 0..n {
            let op = [Op::Read, Op::Write, Op::Discard, Op::Flush][i as usize % 4];
            let extent = if op == Op::Flush { Extent::default() } else { Extent::new(i * 4096, 8192) };
            let record = Record { service: Some(Nanos(i * 7)), ..Record::new(Nanos(i * 1000), op, extent) };
            writer.push(&record).expect("a good record");
            if flush > 0 && i % flush == 0 {
                writer.flush().expect("a vector takes all");
            }
        }
        writer.finish().expect("a vector takes all")
    };
    add("empty", write(0, 0));
    add("one", write(1, 0));
    add("blocks", write(9, 2));
    add("many", write(500, 0));
    let cut = write(20, 0);
    add("cut", cut[..cut.len() - 40].to_vec());
}

/// One change of a volume, as `ext2_image` takes it.
fn change(place: u8, at: u16, value: u32) -> Vec<u8> {
    [&[place | 0x80][..], &at.to_le_bytes(), &[0], &value.to_le_bytes()].concat()
}

fn ext2(add: &mut dyn FnMut(String, Vec<u8>)) {
    // Each volume, untouched, with each thing that is done to it.
    for what in 0..8u8 {
        add(format!("untouched-{what}"), vec![what << 4]);
    }
    for base in 1..4u8 {
        add(format!("base-{base}"), vec![base | 0x10]);
    }
    // A field of the superblock each: counts, sizes, features.
    for at in [0u16, 4, 20, 24, 32, 40, 76, 84, 88, 92, 96, 100, 206] {
        add(format!("superblock-{at}"), [vec![0], change(0, at, 1 << (at % 31))].concat());
    }
    for at in [0u16, 4, 8] {
        add(format!("descriptor-{at}"), [vec![0], change(1, at, 1400)].concat());
    }
    add("bitmap".into(), [vec![0x70], change(2, 137, 0xffff_ffff)].concat());
    // Inode 5: mode, size, links, direct and indirect pointers. Inodes of 128 bytes.
    for at in [0u16, 4, 26, 28, 40, 84, 88, 92, 96, 108] {
        add(format!("inode5-{at}"), [vec![1], change(3, 512 + at, 0x0001_0203)].concat());
        add(format!("check-inode5-{at}"), [vec![0x71], change(3, 512 + at, 1500)].concat());
    }
    // The table's header and its entries, checksums mended.
    for at in [8u16, 16, 32, 36, 40, 4096 + 16, 4096 + 40, 4096 + 48, 8192] {
        add(format!("header-{at}"), [vec![4], change(5, at, 3)].concat());
    }
    for at in [8u16, 24, 28, 64, 68, 72, 80, 84] {
        add(format!("page-{at}"), [vec![4], change(6, at, 1101)].concat());
        add(format!("check-page-{at}"), [vec![0x74], change(6, at, 1101)].concat());
    }
}

fn engine(add: &mut dyn FnMut(String, Vec<u8>)) {
    // Reads near the data, dispatched and completed, with idle time: copies are made and read.
    let read = |at: u8| [6 << 3 | 64, at, 0, 0x11];
    let write = |at: u8| [1 << 3 | 64, at, 0, 0x10];
    let discard = |at: u8| [3 << 3 | 64, at, 0, 0x10];
    let (dispatch, complete, wait) = ([4, 0, 0, 0], [6, 0, 0, 0], [7, 99, 0, 15]);
    for setup in [0u8, 1, 2, 4, 7, 8, 16, 32, 64, 128] {
        let mut events = Vec::new();
        for round in 0..12u8 {
            for at in [10, 11, 12, 13] {
                events.push(if round % 4 == 3 { write(at + round) } else { read(at) });
                events.extend([dispatch, complete, wait]);
            }
            events.push(discard(20 + round));
            events.extend([[dispatch; 4], [complete; 4]].concat());
        }
        add(format!("copies-{setup}"), [&[setup][..], &events.concat()].concat());
    }
    // Requests that overlap, many in flight.
    let mut events = Vec::new();
    for at in 0..20u8 {
        events.extend([read(at % 6 + 8), write(at % 5 + 8), [0, at, 0, 0xf0], dispatch, dispatch]);
        events.push([6, at, 0, 1]);
    }
    add("overlaps".into(), [&[0][..], &events.concat()].concat());
    // A foreign writer, a lost connection, a full host, an end in the middle.
    let tail = [[7, 32, 0, 0], [7, 1, 0, 1], [7, 20, 1, 0], [7, 33, 0, 0], read(10), dispatch, complete];
    add("ends".into(), [&[0][..], &[events.concat(), tail.concat()].concat()].concat());
}

/// Sessions as they were left, and with one thing changed: see the target.
fn hand_over(add: &mut dyn FnMut(String, Vec<u8>)) {
    for session in 0..3u8 {
        add(format!("left-{session}"), vec![session]);
        add(format!("other-volume-{session}"), vec![session | 8]);
    }
    let change = |at: u16, what: u8, value: u8| [&at.to_le_bytes()[..], &[what, value]].concat();
    let from_start = 128;
    // The parts up to the superblock: note, numbers, mark, flags.
    for at in [0u16, 8, 24, 32, 42, 43, 51, 59, 67, 68, 69, 70, 71] {
        add(format!("head-{at}"), [vec![2], change(at, from_start, 0xff)].concat());
    }
    for share in 0..32u16 {
        add(format!("byte-{share}"), [vec![2], change(share * 2048, 5, 1)].concat());
    }
    for (name, what) in [("longer", 2), ("shorter", 3), ("cut", 4), ("ones", 6)] {
        add(name.into(), [vec![1], change(40_000, what, 0xff)].concat());
    }
    add("left-over".into(), [vec![0], change(0, 7, 200)].concat());
    add("wrong-sum".into(), [vec![4], change(40_000, 5, 1)].concat());
    let start = b"FS2HAND\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    add("start".into(), [&[3][..], start].concat());
    add("claims-much".into(), [&[3][..], start, &[0xff; 8]].concat());
}

/// Every statement and law; and what a short text could make long.
fn script(add: &mut dyn FnMut(&str, Vec<u8>)) {
    let every = "set $n=2 * 3 + 1\nset $name=\"set-$n\"\nset mode quit firstdone\neventgen rate=10\n\
        set $io=randvar(type=tabular,min=1k,round=1k,randtable={{80,1k,4k},{20,4k,16k}})\n\
        set $sz=cvar(type=cvar-gamma,parameters=mean:4096;gamma:1.5)\n\
        define randvar name=$w,type=gamma,min=512,mean=16k,gamma=1500\n\
        define fileset name=$name,path=/tmp,size=$sz,entries=$n,dirwidth=20,leafdirs=3,prealloc=80,cached=false\n\
        define file name=one,path=/tmp,size=64k,prealloc,reuse\n\
        define flowop name=inner, $set, $k=2 {\n\
          flowop openfile name=open,filesetname=$set,fd=1\n\
          flowop appendfilerand name=add,fd=1,iosize=$w,iters=$k\n  flowop closefile name=close,fd=1\n}\n\
        define process name=p,instances=2 {\n\
          thread name=t,memsize=1m,instances=$n {\n    flowop inner name=in,$set=$name,iters=3\n\
            flowop read name=rd,filename=one,iosize=4k,random,workingset=32k\n\
            flowop iopslimit name=limit,target=rd\n    flowop semblock name=wait,value=3,highwater=9\n\
            flowop print name=say,value=\"$name\"\n  }\n\
          thread name=u { flowop sempost name=post,target=wait,value=1,blocking\n flowop finishoncount name=end,value=9 }\n}\n\
        echo \"\\$n is $n\"\nsystem \"true\"\nenable lathist\ncreate processes\nstats snap\nsleep 1\npsrun -2 10\n";
    add("every-statement", every.into());
    let laws = ["erlang", "exponential", "lognormal", "normal", "triangular", "uniform", "weibull"];
    let laws: String = laws
        .iter()
        .map(|law| {
            format!(
                "set ${law}=cvar(type=cvar-{law},min=1,max=1m,round=512)\n\
                 define fileset name={law},path=/t,size=${law},entries=3,dirwidth=2,dirgamma=0\n"
            )
        })
        .collect();
    add("laws", laws.into_bytes());
    // Numbers at the ends of what they may be.
    let far = "set $a=cvar(type=cvar-gamma,parameters=mean:1e300;gamma:1e308)\n\
        set $b=cvar(type=cvar-normal,parameters=mean:-1e308;sigma:1e308)\n\
        set $c=cvar(type=cvar-weibull,parameters=shape:1e-300;scale:1e300)\n\
        set $d=randvar(type=gamma,min=0,mean=8388607t,gamma=1)\n\
        define fileset name=f,path=/t,size=$a,entries=9,dirwidth=$b,dirdepthrv=$c\n\
        define file name=g,path=/t,size=$d\ndefine file name=h,path=/t,size=8388607t\n";
    add("far-numbers", far.into());
    // Each composite is two of the one before: a million flowops, were there no bound.
    let mut doubling = String::from("define flowop name=c0 { flowop hog name=h,value=1 }\n");
    for i in 1..20 {
        let below = i - 1;
        doubling += &format!("define flowop name=c{i} {{ flowop c{below} name=a flowop c{below} name=b }}\n");
    }
    add(
        "doubling",
        (doubling + "define process name=p { thread name=t { flowop c19 name=x } }").into_bytes(),
    );
    // A long text under a short name.
    let long = format!("set $a=\"{}\"\n", "x".repeat(900));
    let again: String = (0..60).map(|i| format!("set $b{i}=\"$a\"\necho \"$a\"\n")).collect();
    add("long-text", (long + &again).into_bytes());
}
