"""The daemon beside other servers, interleaved: see --help. Only Python's own library is needed."""
import argparse, contextlib, json, os, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, time
from pathlib import Path

sys.dont_write_bytecode = True
import guest, steps

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[1] / "target"))
BIN = Path(os.environ.get("FS2_BIN", TARGET / "release"))
TICK = os.sysconf("SC_CLK_TCK")
# Whether the kernel offers FUSE requests by io_uring.
FUSE_RING = Path("/sys/module/fuse/parameters/enable_uring")
# The image of a million replicas: 16 GiB in 128 groups of 4 KiB blocks. Of 32 groups the files' blocks are copied, of 32
# others not; of each group the first 768 blocks are left to its metadata.
BLOCK, GROUP, GROUPS, LEAD = 4096, 32768, 128, 768
COPIED, PLAIN, NEAR = range(8, 40), range(44, 76), 90 * GROUP


def parse():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__, epilog="""
parts:
  nbd       fs2d --policy none, nbdkit file, qemu-nbd and nbd-server on a unix socket, fio's nbd engine; beside them what
            makes the system calls and nothing else, where it is built (cargo build --release -p fs2-benches --examples)
  fuse      fs2d --frontend fuse below a loop device, and nbdkit with nbdfuse below one (root)
  fuse-ring fs2d with --fuse-ring on and off below loop devices, and nbdkit with nbdfuse; sets the kernel's
            /sys/module/fuse/parameters/enable_uring and puts it back (root, Linux 6.14; not among the default parts)
  ring      fs2d on a loop device over memory, past the page cache: --io uring and --io threads (root)
  policy    fs2d with policies none and fs2, a million replicas in the table, reads beside them and of them; fs2 also
            with its copying stopped
  steps     the same volume and reads, policies fs2 (copying stopped) and none, and as a plain device, by a client that
            sends so many reads at once and takes all answers before it sends more: what remains is the daemon's own time
            (not among the default parts)
  guest-ublk    in the guest of tests/guest/run: fs2d's ublk device and rublk's loop (not among the default parts)
  guest-nbd     there: fs2 mount --frontend nbd, and nbdkit file with the kernel's client (not among the default parts)
examples:
  run.sh --quick                        one depth, two seconds, three rounds
  run.sh --part nbd --json nbd.json     the whole table, and as JSON
  run.sh --part fuse --beside /tmp/fs2d-before --case 4k     what a change has gained""")
    p.add_argument("--part", action="append", choices=["nbd", "fuse", "fuse-ring", "ring", "policy", steps.PART, *guest.PARTS],
                   help="[default: all but the guest's]")
    p.add_argument("--rounds", type=int, help="rounds of each case [default: 5; policy: 9; quick: 3]")
    p.add_argument("--seconds", type=float, help="of each measurement [default: 3; quick: 1]")
    p.add_argument("--case", help="only cases whose name matches this regular expression")
    p.add_argument("--quick", action="store_true", help="depth 1 and 32 of random reads only")
    p.add_argument("--dir", default="/dev/shm", help="where the images lie [default: /dev/shm]")
    p.add_argument("--size", type=int, default=1 << 30, help="bytes of the plain image [default: 1 GiB]")
    p.add_argument("--args", default="", help="more arguments for fs2d")
    p.add_argument("--beside", help="another build of fs2d, in turns with this one (nbd, fuse and guest-ublk)")
    p.add_argument("--awake", action="store_true",
                   help="keep idle processors awake for every server, by /dev/cpu_dma_latency (root): by itself only fs2d does")
    p.add_argument("--json", help="write the figures to this file")
    return p.parse_args()


def cases(quick, loop):
    found = []
    for depth in (1, 32) if quick else (1, 8, 32):
        for rw in ("randread",) if quick else ("randread", "randwrite"):
            for jobs in (1,) if quick or loop else (1, 4):
                found.append((rw, "4k", depth, jobs))
    if not quick:
        for rw in ("read", "write"):
            for jobs in (1,) if loop else (1, 4):
                found.append((rw, "128k", 8, jobs))
    return found


class Server:
    """A process that serves an image, and those it needs."""

    def __init__(self, name, commands):
        self.name, self.pid_file = name, None
        self.log = tempfile.TemporaryFile()
        self.processes = []
        for command, wait in commands:
            self.processes.append(subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL))
            self.wait(wait)

    def wait(self, ready):
        for _ in range(600):
            if ready():
                return
            if self.processes[-1].poll() is not None:
                self.log.seek(0)
                raise RuntimeError(f"{self.name} ended: {self.log.read().decode(errors='replace')[-500:]}")
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} did not start")

    def cpu(self):
        """Seconds of processor time, ended threads and children included."""
        total = 0
        for pid in self.pids():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # a child that ended; its parent has its time when it has waited for it
            total += sum(map(int, fields[11:15]))
        return total / TICK

    def pids(self):
        """Those started here and their children (nbd-server forks for each client)."""
        found = [p.pid for p in self.processes]
        if self.pid_file:
            found.append(int(self.pid_file.read_text()))
        for pid in found:
            # A child that has ended meanwhile has none.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return found

    def stop(self):
        for p in reversed(self.processes):
            p.send_signal(signal.SIGTERM)
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


def listens(path):
    def ready():
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(str(path))
                return True
            except OSError:
                return False
    return ready


# Seconds before anything is measured: fio's start, and what a server does only at first.
LEAD_IN = 1.0


def measure(server, target, case, seconds, span, write_ok):
    """Requests a second, and microseconds of the server's time a request, both of the same stretch of time."""
    rw, bs, depth, jobs = case
    if not write_ok and "write" in rw:
        raise RuntimeError("this image is not written")
    command = ["fio", "--name=x", f"--rw={rw}", f"--bs={bs}", f"--iodepth={depth}", f"--numjobs={jobs}",
               "--thread", "--group_reporting", "--time_based", f"--runtime={seconds}", f"--ramp_time={LEAD_IN}",
               "--norandommap", "--randrepeat=0", f"--offset={span[0]}", f"--size={span[1]}", "--output-format=json", *target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        # On a busy machine fio takes its time to start.
        idle = server.cpu()
        while server.cpu() == idle and p.poll() is None:
            time.sleep(0.01)
        time.sleep(LEAD_IN + 0.2)
        before, started = server.cpu(), time.monotonic()
        time.sleep(seconds * 0.85)
        spent, passed = server.cpu() - before, time.monotonic() - started
        out, err = p.communicate(timeout=seconds * 10 + 60)
    if p.returncode:
        raise RuntimeError(f"{server.name}: fio: {err[-300:]} {out[-300:]}")
    job = json.loads(out[out.index("{"):])["jobs"][0]
    iops = job["read" if "read" in rw else "write"]["iops"]
    return iops, spent / (iops * passed) * 1e6


def name_of(case):
    rw, bs, depth, jobs = case
    return f"{rw} {bs} depth {depth}" + (f" x{jobs}" if jobs > 1 else "")


def interval(values):
    """The median and what it lies between with 95 %: order statistics by the binomial law."""
    v, n = sorted(values), len(values)
    from math import comb
    k, below = 0, 0.0
    while k < n // 2:
        below += comb(n, k) / 2 ** n
        if below > 0.025:
            break
        k += 1
    k = max(k - 1, 0)
    return statistics.median(v), v[k], v[n - 1 - k]


def run(part, servers, cases, rounds, seconds, only, results, how=None):
    """servers: (Server, fio's target, span, may be written)"""
    print(f"\n{part}: medians of {rounds} rounds; ratios are of {servers[0][0].name} to each other, round by round")
    for case in cases:
        name = name_of(case)
        if only and not re.search(only, name):
            continue
        rows = {s[0].name: [] for s in servers}
        for r in range(rounds):
            order = servers if r % 2 == 0 else servers[::-1]
            for server, target, span, write_ok in order:
                rows[server.name].append((how or measure)(server, target, case, seconds, span, write_ok))
        ours = rows[servers[0][0].name]
        for server, *_ in servers:
            theirs = rows[server.name]
            rate = statistics.median(t[0] for t in theirs)
            cpu = statistics.median(t[1] for t in theirs)
            speedup = interval([a[0] / b[0] for a, b in zip(ours, theirs)])
            cost = interval([a[1] / max(b[1], 1e-9) for a, b in zip(ours, theirs)])
            line = f"  {name:28} {server.name:16} {rate:10.0f}/s {cpu:7.2f} us"
            if server is not servers[0][0]:
                line += f"   rate x{speedup[0]:.2f} [{speedup[1]:.2f}, {speedup[2]:.2f}]   time x{cost[0]:.3f} [{cost[1]:.3f}, {cost[2]:.3f}]"
            print(line, flush=True)
            results.append({"part": part, "case": name, "server": server.name, "rounds": theirs,
                            "rate_ratio": speedup, "time_ratio": cost})


def data_images(paths, size):
    """In turns: what is written first has other memory than the next, and requests of 128 KiB are a seventh slower there."""
    piece = os.urandom(1 << 20)
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(open(path, "wb")) for path in paths]
        for _ in range(size >> 20):
            for file in files:
                file.write(piece)


def main():
    a = parse()
    parts = a.part or ["nbd", "fuse", "ring", "policy"]
    seconds = a.seconds or (1 if a.quick else 3)
    fs2d, mkfs2, bare, results, skipped = BIN / "fs2d", BIN / "mkfs2", BIN / "examples/bare_nbd", [], []
    for program in (fs2d, mkfs2):
        if not program.exists():
            sys.exit(f"{program}: build first: cargo build --release -p fs2d -p fs2-tools")
    if not shutil.which("fio"):
        print("skipped: no fio", file=sys.stderr)
        sys.exit(77)
    work = Path(tempfile.mkdtemp(prefix="fs2-peers-", dir=a.dir))
    os.environ["FS2_RUNTIME_DIR"] = str(work / "run")
    os.environ.setdefault("FS2_LOG", "warn")
    running, undo = [], []
    besides = [("beside", Path(a.beside).resolve())] if a.beside else []
    if a.awake:
        latency = open("/dev/cpu_dma_latency", "wb", buffering=0)
        latency.write(bytes(4))
    # What was started ends and what was made goes, also when this is told to stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def start(name, commands):
        server = Server(name, commands)
        running.append(server)
        return server

    def serve(name, image, *more, program=fs2d):
        sock = work / f"{re.sub('[^a-z0-9]+', '-', name)}.sock"
        command = [program, "serve", image, "--frontend", "nbd", "--listen", f"unix:{sock}", "--control", f"{sock}.ctl", *more, *a.args.split()]
        return start(name, [(command, listens(sock))]), nbd(sock)

    def nbd(sock, export=""):
        return ["--ioengine=nbd", f"--uri=nbd+unix:///{export}?socket={sock}"]

    def end():
        while running:
            running.pop().stop()
        while undo:
            undo.pop()()

    def have(*programs):
        missing = [p for p in programs if not shutil.which(p)]
        if missing:
            skipped.append(f"{programs[0]}: {', '.join(missing)} not found")
        return not missing

    try:
        if {"nbd", "fuse", "fuse-ring"} & set(parts):
            # One each: the servers lock or cache theirs, and writes of one must not be another's.
            names = ("fs2d", "nbdkit", "qemu-nbd", "nbd-server", "bare", *(("fs2d-device",) if "fuse-ring" in parts else ()), *(name for name, _ in besides))
            data_images([work / f"{name}.img" for name in names], a.size)
        if "nbd" in parts:
            span, servers = (0, a.size), []
            for name, program in (("fs2d", fs2d), *besides):
                servers.append((*serve(name, work / f"{name}.img", "--passive", "--policy", "none", program=program), span, True))
            if have("nbdkit"):
                sock = work / "nbdkit.sock"
                servers.append((start("nbdkit", [(["nbdkit", "-f", "-U", sock, "file", work / "nbdkit.img"], listens(sock))]), nbd(sock), span, True))
            if have("qemu-nbd"):
                sock = work / "qemu.sock"
                command = ["qemu-nbd", "-k", sock, "-t", "-e", "8", "-f", "raw", work / "qemu-nbd.img"]
                servers.append((start("qemu-nbd", [(command, listens(sock))]), nbd(sock), span, True))
            if have("nbd-server"):
                sock, config = work / "nbds.sock", work / "nbds.conf"
                config.write_text(f"[generic]\nuser = root\ngroup = root\nunixsock = {sock}\nlistenaddr = 127.0.0.1\nport = 10977\n"
                                  f"[x]\nexportname = {work}/nbd-server.img\n")
                # It goes into the background; what stays is a shell that waits for it, and takes it along.
                stay = f"nbd-server -C {config} -p {work}/nbds.pid; trap 'kill $(cat {work}/nbds.pid)' TERM; while :; do sleep 0.1; done"
                server = start("nbd-server", [(["bash", "-c", stay], listens(sock))])
                server.pid_file = work / "nbds.pid"
                servers.append((server, nbd(sock, "x"), span, True))
            if bare.exists():
                sock = work / "bare.sock"
                servers.append((start("bare", [([bare, work / "bare.img", sock], listens(sock))]), nbd(sock), span, True))
            else:
                skipped.append(f"bare: {bare} is not built")
            run("nbd", servers, cases(a.quick, False), a.rounds or (3 if a.quick else 5), seconds, a.case, results)
            end()
        for part in [p for p in ("fuse", "fuse-ring") if p in parts]:
            servers, by_ring = [], part == "fuse-ring"
            if os.geteuid() or not Path("/dev/fuse").exists() or not Path("/dev/loop-control").exists():
                skipped.append(f"{part}: needs root, /dev/fuse and loop devices")
            elif by_ring and not FUSE_RING.exists():
                skipped.append(f"{part}: needs {FUSE_RING} (Linux 6.14, CONFIG_FUSE_IO_URING)")
            else:
                def loop(file):
                    dev = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", file], check=True, capture_output=True, text=True).stdout.strip()
                    undo.append(lambda: subprocess.run(["losetup", "-d", dev]))
                    queue = Path("/sys/block") / dev[5:] / "queue"
                    for key, value in (("scheduler", "none"), ("rotational", "0"), ("read_ahead_kb", "128")):
                        (queue / key).write_text(value)
                    return [f"--filename={dev}", "--direct=1", "--ioengine=libaio"]
                if by_ring:
                    former = FUSE_RING.read_text()
                    undo.append(lambda: FUSE_RING.write_text(former))
                    FUSE_RING.write_text("Y")
                for name, program in (("fs2d", fs2d), ("fs2d-device", fs2d)) if by_ring else (("fs2d", fs2d), *besides):
                    ours = work / f"{part}-{name}"
                    ours.mkdir()
                    command = [program, "serve", work / f"{name}.img", "--passive", "--policy", "none", "--frontend", "fuse", "--fuse-dir", ours, "--control", f"{ours}.ctl",
                               *(["--fuse-ring", "on" if name == "fs2d" else "off"] if by_ring else []), *a.args.split()]
                    server = start(name, [(command, (ours / "volume").exists)])
                    servers.append((server, loop(ours / "volume"), (0, a.size), True))
                if have("nbdkit", "nbdfuse"):
                    theirs, sock = work / f"{part}-theirs", work / f"{part}-nbdkit.sock"
                    theirs.mkdir()
                    commands = [(["nbdkit", "-f", "-U", sock, "file", work / "nbdkit.img"], listens(sock)),
                                (["nbdfuse", theirs, f"nbd+unix:///?socket={sock}"], (theirs / "nbd").exists)]
                    server = start("nbdkit+nbdfuse", commands)
                    undo.append(lambda theirs=theirs: subprocess.run(["fusermount3", "-u", theirs], capture_output=True))
                    servers.append((server, loop(theirs / "nbd"), (0, a.size), True))
                run(part, servers, cases(a.quick, True), a.rounds or (3 if a.quick else 5), seconds, a.case, results)
                while undo:
                    undo.pop()()
            end()
        if "ring" in parts:
            ring(work, a, seconds, start, nbd, undo, skipped, results)
            end()
        for part in guest.PARTS:
            if part in parts:
                guest.host(part, a, a.rounds or (3 if a.quick else 5), seconds, skipped, results)
        if steps.PART in parts:
            image, servers = million(work, mkfs2), []
            active = ["--space", "30%", "--require-active"]
            for name, more in (("fs2, no copying", ["--policy", "fs2", "--host-reserve", "100%", *active]), ("none", ["--policy", "none", *active]), ("plain", ["--passive"])):
                copy = work / f"million-{len(servers)}.img"
                subprocess.run(["cp", "--sparse=always", image, copy], check=True)
                server, target = serve(name, copy, *more)
                servers.append((server, target[-1].rsplit("=", 1)[1]))
            print("\nsteps: medians of turns; processor time a request")
            for title, groups in (("no hits", PLAIN), ("hits", COPIED)):
                print(f" {title}")
                for depth in (1, 32):
                    steps.run(title, servers, depth, BLOCK, groups[0] * GROUP, len(groups) * GROUP, interval, results)
            for server, sock in servers:
                told = json.loads(subprocess.run([BIN / "fs2", "status", "--json", "--control", f"{sock}.ctl"], check=True, capture_output=True).stdout)
                print(f" {server.name}: {told['reads']} reads, {told['reads_from_replica']} from replicas")
            end()
        if "policy" in parts:
            image = million(work, mkfs2)
            servers = []
            # Without copying in the background, what is left of the policy is what it costs each request.
            for name, more in (("fs2, no copying", ["--policy", "fs2", "--host-reserve", "100%"]), ("none", ["--policy", "none"]), ("fs2", ["--policy", "fs2"])):
                copy = work / f"million-{len(servers)}.img"
                subprocess.run(["cp", "--sparse=always", image, copy], check=True)
                servers.append(serve(name, copy, *more, "--space", "30%", "--require-active"))
            rest, hits = [(g[0] * GROUP * BLOCK, len(g) * GROUP * BLOCK) for g in (PLAIN, COPIED)]
            for title, span in (("policy, no hits", rest), ("policy, hits", hits)):
                run(title, [(*s, span, False) for s in servers], [("randread", "4k", d, 1) for d in (1, 32)], a.rounds or (3 if a.quick else 9), seconds, a.case, results)
            end()
    finally:
        end()
        shutil.rmtree(work, ignore_errors=True)
    for line in skipped:
        print(f"skipped: {line}")
    if a.json:
        Path(a.json).write_text(json.dumps({"results": results, "skipped": skipped, "kernel": os.uname().release, "cpus": os.cpu_count()}, indent=1))


def ring(work, a, seconds, start, nbd, undo, skipped, results):
    """I/O past the page cache, on a loop device over memory: by io_uring, by threads, and nbdkit's."""
    if os.geteuid() or not Path("/dev/loop-control").exists():
        skipped.append("ring: needs root and loop devices")
        return
    servers, span, ways = [], (0, a.size), ("uring", "threads")
    data_images([work / f"{how}.img" for how in ways], a.size)
    for how in ways:
        dev = subprocess.run(["losetup", "--find", "--show", work / f"{how}.img"], check=True, capture_output=True, text=True).stdout.strip()
        undo.append(lambda dev=dev: subprocess.run(["losetup", "-d", dev]))
        (Path("/sys/block") / dev[5:] / "queue/rotational").write_text("0")
        sock = work / f"{how}.sock"
        command = [BIN / "fs2d", "serve", dev, "--frontend", "nbd", "--listen", f"unix:{sock}", "--control", f"{sock}.ctl",
                   "--passive", "--policy", "none", "--io", how, *a.args.split()]
        servers.append((start(f"fs2d {how}", [(command, listens(sock))]), nbd(sock), span, True))
    run("ring", servers, cases(a.quick, False), a.rounds or (3 if a.quick else 5), seconds, a.case, results)


def million(work, mkfs2):
    """A volume with a million replicas. All of its blocks are holes, in use by the bitmaps' word alone."""
    image = work / "million.img"
    with open(image, "wb") as f:
        f.truncate(GROUPS * GROUP * BLOCK)
    def sh(*command):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stdout[-500:]}{done.stderr[-500:]}")
    sh("mke2fs", "-q", "-F", "-t", "ext2", "-O", "^resize_inode", "-b", BLOCK, "-m", 0, "-N", 4096, image)
    told = subprocess.run(["dumpe2fs", image], capture_output=True, text=True, check=True).stdout
    free = [int(n) for n in re.findall(r"^  (\d+) free blocks", told, re.M)]
    script, each = [], GROUP - LEAD
    for group in (*COPIED, *PLAIN):
        script += [f"setb {group * GROUP + LEAD} {each}", f"set_bg {group} free_blocks_count {free[group] - each}"]
    script.append(f"ssv free_blocks_count {sum(free) - each * len((*COPIED, *PLAIN))}")
    (work / "setb").write_text("\n".join(script) + "\n")
    sh("debugfs", "-w", "-f", work / "setb", image)
    sh(mkfs2, "--space", "30%", image)
    blocks = ",".join(f"{g * GROUP + LEAD}-{(g + 1) * GROUP - 1}" for g in COPIED)
    sh(mkfs2, "replicate", image, "--blocks", blocks, "--near", NEAR)
    # What was copied is zeros: as holes they take no memory.
    sh("fallocate", "--dig-holes", image)
    return image


if __name__ == "__main__":
    main()
