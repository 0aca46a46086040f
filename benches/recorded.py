#!/usr/bin/env python3
"""Traces of everyday programs on today's kernel: fills an ext2 volume, records each program through the daemon, replays what was recorded.

    benches/recorded.py fill DIR --sources linux-source-6.1.tar.xz     # 24 GiB, sparse, of which 3 are used; some ten minutes
    benches/recorded.py record DIR [KIND ...]                          # five cold runs each on a modelled drive, in real time
    benches/recorded.py replay DIR [KIND ...] [--policy none,fs2,borg] [-- options of fs2-replay run]

Kinds: git (status, log, grep, commit), grep, find (find -ls and du), build (150 files preprocessed), backup (rsync --link-dest behind new
mail), mail (deliveries with fsync, folders read), sql (SQLite: lookups by index, updates), share (four users read files by popularity).
Needs root, FUSE, loop devices, git, rsync, gcc, and `fs2` and `fs2-replay` in target/release (FS2 and FS2_REPLAY name others). Programs get
96 MiB of memory in a group of their own where there is a cgroup for it, so that much is read again. Caches of the whole machine are dropped
before each run. Only Python's own library is needed.
"""
import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FS2 = os.environ.get("FS2", ROOT / "target/release/fs2")
REPLAY = os.environ.get("FS2_REPLAY", ROOT / "target/release/fs2-replay")
KINDS = ["git", "grep", "find", "build", "backup", "mail", "sql", "share"]
USERS = 40
ROUNDS = 6
MEMORY = 96 << 20


def shell(command, cwd=None):
    subprocess.run(command, shell=True, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def deliver(draw, path):
    with open(path, "wb") as f:
        f.write(b"Subject: %d\n\n" % draw.randrange(10**9))
        f.write(draw.randbytes(int(min(200_000, draw.lognormvariate(8.6, 1.2)))))
        f.flush()
        os.fsync(f.fileno())


def parts(tree, k):
    """A sixth of a source tree's directories of the second level."""
    found = sorted(p.relative_to(tree) for p in tree.glob("*/*") if "gpu" not in p.name)
    found += sorted(p.relative_to(tree) for p in tree.glob("*") if p.is_file())
    random.Random(1).shuffle(found)
    return found[k::ROUNDS]


def fill_round(tree, top, k):
    """Sources that are committed, mail, rows and libraries, among files that come and go."""
    draw, git = random.Random(k), top / "git"
    if k == 0:
        git.mkdir()
        shell("git init -q; git config user.email a@b; git config user.name x; git config gc.auto 0", git)
        for u in range(USERS):
            (top / f"mail/u{u}/cur").mkdir(parents=True)
            (top / f"mail/u{u}/new").mkdir()
        (top / "db").mkdir()
        (top / "lib").mkdir()
        with closing(sqlite3.connect(top / "db/a.db")) as db:
            db.execute("create table t(id integer primary key, k integer, u integer, v blob)")
            db.execute("create index tk on t(k)")
            db.execute("create index tu on t(u, k)")
            db.commit()
    for p in parts(tree, k):
        (git / p).parent.mkdir(parents=True, exist_ok=True)
        shell(f"cp -r '{tree / p}' '{git / p}'")
    junk = top / f"junk{k}"
    junk.mkdir()
    for i in range(250):
        (junk / str(i)).write_bytes(draw.randbytes(draw.randrange(20_000, 900_000)))
    files = subprocess.run(["git", "ls-files"], cwd=git, capture_output=True, text=True).stdout.splitlines()
    for p in (git / f for f in draw.sample(files, min(len(files), 400))):
        if p.is_file() and not p.is_symlink():
            text = p.read_bytes()
            p.unlink()
            p.write_bytes(text + b"/* %d */\n" % k)
    shell(f"git add -A; git commit -qm {k}", git)
    for i in range(3000):
        deliver(draw, top / f"mail/u{draw.randrange(USERS)}/cur/{k}.{i}")
    with closing(sqlite3.connect(top / "db/a.db")) as db:
        for _ in range(20):
            rows = [(draw.randrange(1 << 40), draw.randrange(20_000), draw.randbytes(draw.randrange(100, 900))) for _ in range(5000)]
            db.executemany("insert into t(k,u,v) values(?,?,?)", rows)
            db.commit()
    for i in range(0, 250, 2):
        (top / f"junk{k - 1}/{i}").unlink(missing_ok=True)
    libraries = sorted(os.listdir("/usr/share"))
    random.Random(9).shuffle(libraries)
    for name in libraries[k::ROUNDS]:
        shell(f"cp -r '/usr/share/{name}' '{top / 'lib'}'")


def work(kind, top, n):
    """One run; the same each time but for what a day changes."""
    draw, git = random.Random(n), top / "git"
    if kind == "git":
        shell("git status; git log -3 --stat; git grep -n spin_lock_irq -- kernel mm fs", git)
        for name in draw.sample(sorted(os.listdir(git / "fs")), 3):
            (git / f"fs/edit{n}{name}").write_text("x" * 3000)
        shell(f"git add -A; git commit -qm run{n}; git diff HEAD~2 --stat", git)
    elif kind == "grep":
        shell("grep -rc irq Documentation include kernel", git)
    elif kind == "find":
        shell("find . -ls; du -s lib mail", top)
    elif kind == "build":
        include = "-Iinclude -Iarch/x86/include -Iinclude/uapi -Iarch/x86/include/uapi"
        shell(f"for f in $(find lib mm -name '*.c' | head -150); do gcc -E -nostdinc {include} $f; done", git)
    elif kind == "backup":
        (top / "backup").mkdir(exist_ok=True)
        for u in range(USERS):
            for i in range(5):
                deliver(draw, top / f"mail/u{u}/cur/b{n}.{i}")
        link = f"--link-dest={top}/backup/{n - 1}" if n > 1 else ""
        shell(f"rsync -a {link} mail lib/doc backup/{n}/", top)
    elif kind == "mail":
        for s in range(250):
            box = top / f"mail/u{min(USERS - 1, int(draw.expovariate(1 / 8)))}"
            if draw.random() < 0.35:
                deliver(draw, box / f"new/{n}.{s}")
            else:
                there = sorted(os.listdir(box / "cur"))
                for name in os.listdir(box / "new"):
                    (box / "new" / name).rename(box / "cur" / name)
                for name in draw.sample(there, min(len(there), 4)) + there[-3:]:
                    (box / "cur" / name).read_bytes()
            time.sleep(0.02 if s % 10 else 0.2)
    elif kind == "sql":
        db = sqlite3.connect(top / "db/a.db")
        db.execute("pragma cache_size=-4000")
        last = db.execute("select max(id) from t").fetchone()[0]
        hot = random.Random(5).sample(range(20_000), 2000)
        for s in range(300):
            x = draw.random()
            if x < 0.5:
                user = hot[int(draw.paretovariate(0.6)) % len(hot)]
                db.execute("select count(*), sum(length(v)) from t where u=?", (user,)).fetchall()
            elif x < 0.8:
                db.execute("select v from t where id=?", (int(last * draw.betavariate(1, 4)),)).fetchall()
            else:
                db.execute("update t set v=? where id=?", (draw.randbytes(300), draw.randrange(1, last)))
                db.commit()
            if s % 25 == 0:
                time.sleep(0.1)
    elif kind == "share":
        files = sorted(p for p in (top / "lib").rglob("*") if p.is_file() and not p.is_symlink())
        random.Random(3).shuffle(files)

        def user(u):
            own = random.Random(n * 100 + u)
            for _ in range(120):
                files[int((own.paretovariate(0.35) - 1) * 3) % len(files)].read_bytes()
                time.sleep(own.expovariate(20))

        users = [threading.Thread(target=user, args=(u,)) for u in range(4)]
        [u.start() for u in users]
        [u.join() for u in users]


def fill(directory, sources):
    tree, top, image = directory / "sources", directory / "m", directory / "image"
    tree.mkdir(parents=True)
    subprocess.run(["tar", "-C", tree, "-xf", sources, "--strip-components=1"], check=True)
    top.mkdir(exist_ok=True)
    with open(image, "wb") as f:
        f.truncate(24 << 30)
    subprocess.run(["mke2fs", "-qF", "-t", "ext2", "-b", "4096", image], check=True)
    subprocess.run(["mount", "-o", "loop", "-t", "ext2", image, top], check=True)
    try:
        for k in range(ROUNDS):
            fill_round(tree, top, k)
            print(f"round {k + 1} of {ROUNDS}", flush=True)
    finally:
        subprocess.run(["umount", top], check=True)
        shutil.rmtree(tree)


def limited():
    """A group whose memory is short; nothing where there is no such thing."""
    old = Path("/sys/fs/cgroup/memory")
    group, limit = (old, "memory.limit_in_bytes") if old.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")
    group = group / f"fs2-recorded.{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(MEMORY))
        return group
    except OSError as e:
        print(f"no memory limit ({e}): caches are as large as memory", file=sys.stderr)
        return None


def record(directory, kinds):
    top, image, group = directory / "m", directory / "image", limited()
    join = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"] if group else []
    for kind in kinds:
        subprocess.run(["e2fsck", "-fp", image], stdout=subprocess.DEVNULL)
        with open(directory / f"{kind}.dumpe2fs", "wb") as f:
            subprocess.run(["dumpe2fs", image], stdout=f, stderr=subprocess.DEVNULL, check=True)
        traces = []
        for n in range(1, 6):
            trace = directory / f"{kind}.{n}.trace"
            trace.unlink(missing_ok=True)
            traces.append(trace)
            options = ["--policy", "none", "--frontend", "fuse", "--drive", "wd800-repaired", "--trace", trace]
            subprocess.run([FS2, "mount", *options, image, top], stdout=subprocess.DEVNULL, check=True)
            try:
                Path("/proc/sys/vm/drop_caches").write_text("3")
                began = time.time()
                subprocess.run([*join, sys.executable, __file__, "work", kind, top, str(n)], check=True)
                print(f"{kind}, run {n}: {time.time() - began:.0f} s", flush=True)
            finally:
                subprocess.run([FS2, "umount", top], check=True)
    if group:
        group.rmdir()


def replay(directory, kinds, policies, options):
    """Each run's trace in turn, a minute between: mean response and its 99th percentile in ms."""
    for kind in kinds:
        texts, starts, at = [], [], 0.0
        for n in range(1, 6):
            trace = directory / f"{kind}.{n}.trace"
            text = subprocess.run([REPLAY, "convert", "--to", "blkparse", trace, "-"], capture_output=True, text=True, check=True).stdout
            lines = [line.split() for line in text.splitlines()]
            first = min(float(f[3]) for f in lines)
            for f in lines:
                f[3] = f"{float(f[3]) - first + at:.9f}"
            starts.append(at)
            texts += [" ".join(f) for f in lines]
            at = max(float(f[3]) for f in lines) + 1
        joined = directory / f"{kind}.blkparse"
        joined.write_text("\n".join(texts) + "\n")
        split = ",".join(f"{s:.3f}" for s in starts)
        command = [REPLAY, "run", joined, "--event", "D", "--free-map", directory / f"{kind}.dumpe2fs", "--split", split, "--policy", policies, "--json", *options]
        figures = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for policy in figures["policies"]:
            runs = "  ".join(f"{r['response_ms']:8.2f} {r['p99_response_ms']:7.1f}" for r in policy["runs"])
            print(f"{kind:7} {policy['name']:9} {runs}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("step", choices=["fill", "record", "replay", "work"])
    p.add_argument("directory", help="where the volume and the traces lie")
    p.add_argument("kinds", nargs="*")
    p.add_argument("--sources", help="fill: a tar of a source tree")
    p.add_argument("--policy", default="none,fs2,borg,alis-run")
    argv, options = sys.argv[1:], []
    if "--" in argv:
        argv, options = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    if argv[:1] == ["work"]:
        return work(argv[1], Path(argv[2]), int(argv[3]))
    a = p.parse_args(argv)
    directory, kinds = Path(a.directory).resolve(), a.kinds or KINDS
    if unknown := set(kinds) - set(KINDS):
        p.error(f"no such kind: {', '.join(sorted(unknown))}")
    if a.step == "fill":
        if not a.sources:
            p.error("fill needs --sources")
        fill(directory, Path(a.sources).resolve())
    elif a.step == "record":
        record(directory, kinds)
    else:
        replay(directory, kinds, a.policy, options)


if __name__ == "__main__":
    main()
