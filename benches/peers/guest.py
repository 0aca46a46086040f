"""The kernel's block devices, in the guest of tests/guest/run: ublk beside rublk, NBD beside nbdkit with nbd-client.
`host` puts what is needed into a share and boots; as a program, this file is what runs in the guest."""
import json, os, re, shutil, subprocess, sys, tempfile, time
from pathlib import Path

import peers

ROOT = Path(__file__).resolve().parents[2] if len(Path(__file__).resolve().parents) > 2 else Path("/")
PARTS = ("guest-ublk", "guest-nbd")
SIZE = 64 << 20


def host(part, a, rounds, seconds, skipped, results):
    """Boots a guest for one part and takes its figures."""
    tools = ROOT / "target/tools"
    cache = Path(os.environ.get("FS2_GUEST_DIR", ROOT / "target/guest"))
    if os.geteuid() or not shutil.which("qemu-system-x86_64") or not (cache / "vmlinuz").exists():
        skipped.append(f"{part}: needs root, qemu-system-x86_64 and tests/guest/run --prepare")
        return
    share = Path(tempfile.mkdtemp(prefix="fs2-peers-guest-"))
    try:
        for file in (__file__, peers.__file__, peers.steps.__file__, peers.BIN / "fs2d", peers.BIN / "fs2"):
            shutil.copy(file, share)
        # Both may be unpacked there instead of installed: rublk by cargo, nbd-client with its libraries by dpkg-deb -x.
        for name in ("rublk", "nbd-client"):
            found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin:{tools}/bin")
            if found:
                shutil.copy(found, share)
        if a.beside:
            shutil.copy(a.beside, share / "fs2d-beside")
        if (tools / "lib").is_dir():
            shutil.copytree(tools / "lib", share / "lib")
        words = [part, str(rounds), str(seconds), a.case or ""]
        case = share / "case"
        case.write_text("#!/bin/sh\nexport LD_LIBRARY_PATH=/tmp/share/lib\nexec python3 guest.py " + " ".join(f"'{w}'" for w in words) + "\n")
        case.chmod(0o755)
        command = [ROOT / "tests/guest/run", "--modules", "nbd ublk_drv", "--bin", share, "--memory", "1536", "--seconds", "900", share]
        done = subprocess.run(list(map(str, command)), env={**os.environ, "FS2_GUEST_DIR": str(cache)}, capture_output=True, text=True)
        log = (share / "log").read_text(errors="replace") if (share / "log").exists() else ""
        print(log, end="")
        if done.returncode or not (share / "json").exists():
            raise RuntimeError(f"{part}: the guest's case ended with {done.returncode}: {done.stderr[-2000:]}")
        told = json.loads((share / "json").read_text())
        results += told["results"]
        skipped += told["skipped"]
    finally:
        shutil.rmtree(share, ignore_errors=True)


def measure(server, target, case, seconds, span, _):
    """As peers.measure, but over fio's whole life, whose start takes seconds here and varies."""
    rw, bs, depth, jobs = case
    command = ["fio", "--name=x", f"--rw={rw}", f"--bs={bs}", f"--iodepth={depth}", f"--numjobs={jobs}", "--thread", "--group_reporting",
               "--time_based", f"--runtime={seconds}", "--norandommap", "--randrepeat=0", f"--size={span[1]}", "--output-format=json", *target]
    before = server.cpu()
    done = subprocess.run(command, capture_output=True, text=True)
    spent = server.cpu() - before
    if done.returncode:
        raise RuntimeError(f"{server.name}: fio: {done.stderr[-300:]} {done.stdout[-300:]}")
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]
    return job["iops"], spent / max(job["total_ios"], 1) * 1e6


def device(node):
    """fio's words for a block device, which is given the same queue whoever serves it."""
    queue = Path("/sys/block") / node[5:] / "queue"
    for key, value in (("scheduler", "none"), ("rotational", "0"), ("read_ahead_kb", "128")):
        (queue / key).write_text(value)
    return [f"--filename={node}", "--direct=1", "--ioengine=libaio"]


def has_size(node):
    """Whether the device is there and was given its size."""
    size = Path("/sys/block") / node[5:] / "size"
    return lambda: os.path.exists(node) and size.exists() and size.read_text().strip() != "0"


def sh(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def images(*names):
    paths = [Path("/tmp") / f"{name}.img" for name in names]
    peers.data_images(paths, SIZE)
    return paths


def ublk(skipped):
    builds = ["fs2d", *filter(shutil.which, ["fs2d-beside"])]
    span, (other, *paths) = (0, SIZE), images("rublk", *builds)
    for number, (program, path) in enumerate(zip(builds, paths)):
        command = [program, "serve", path, "--frontend", "ublk", "--queues", "1", "--passive", "--policy", "none", "--control", f"/tmp/{program}.ctl"]
        node = f"/dev/ublkb{number}"
        yield peers.Server(f"{program} ublk", [(command, has_size(node))]), device(node), span, False
    if not shutil.which("rublk"):
        skipped.append("guest-ublk: rublk not found (cargo install rublk --no-default-features --root target/tools; needs libclang)")
        return
    # Both serve a file in memory, through the page cache, by one queue of 128.
    command = ["rublk", "add", "loop", "-n", "9", "-q", "1", "-d", "128", "--foreground", "--buffered-io", "-f", other]
    yield peers.Server("rublk loop", [(command, has_size("/dev/ublkb9"))]), device("/dev/ublkb9"), span, False


def nbd(skipped):
    span, (path, other) = (0, SIZE), images("fs2d", "nbdkit")
    # The blocks keep their bytes: only metadata is written.
    sh("mke2fs", "-q", "-F", "-t", "ext2", "-E", "nodiscard", path)
    os.makedirs("/tmp/m", exist_ok=True)
    sh("fs2", "mount", "--frontend", "nbd", "--policy", "none", path, "/tmp/m")
    told = sh("fs2", "status", "--json", "/tmp/m")
    node = re.search(r"/dev/nbd\d+", sh("mount")).group()
    server = peers.Server("fs2 nbd", [])
    server.pid_file = Path("/tmp/fs2.pid")
    server.pid_file.write_text(re.search(r'"pid":\s*(\d+)', told).group(1))
    server.stop = lambda: sh("fs2", "umount", "/tmp/m")
    yield server, device(node), span, False
    missing = [p for p in ("nbdkit", "nbd-client") if not shutil.which(p)]
    if missing:
        skipped.append(f"guest-nbd: {', '.join(missing)} not found")
        return
    sock = "/tmp/nbdkit.sock"
    server = peers.Server("nbdkit file", [(["nbdkit", "-f", "-U", sock, "file", other], peers.listens(sock))])
    sh("nbd-client", "-unix", sock, "/dev/nbd9")
    until = time.monotonic() + 10
    while not has_size("/dev/nbd9")() and time.monotonic() < until:
        time.sleep(0.05)
    yield server, device("/dev/nbd9"), span, False


def inside(part, rounds, seconds, only):
    results, skipped, servers = [], [], []
    os.environ.setdefault("FS2_LOG", "warn")
    try:
        for server in (ublk if part == "guest-ublk" else nbd)(skipped):
            servers.append(server)
        peers.run(part, servers, [("randread", "4k", depth, 1) for depth in (1, 32)], int(rounds), float(seconds), only, results, measure)
    finally:
        if any(s[0].name == "nbdkit file" for s in servers):
            subprocess.run(["nbd-client", "-d", "/dev/nbd9"], capture_output=True)
        for server, *_ in reversed(servers):
            server.stop()
    Path("json").write_text(json.dumps({"results": results, "skipped": skipped}))


if __name__ == "__main__":
    inside(*sys.argv[1:])
