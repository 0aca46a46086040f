#!/usr/bin/env python3
"""fsbench's postmark beside PostMark itself: in turns, one directory, medians of several rounds.

The same seed and settings, so the same operations: differing counts end it with 1. PostMark writes and reads by system
calls of a block (`buffering false`, 512 bytes) or through its C library (4096 bytes at a time). Time is that of
the whole process for PostMark and of the run for fsbench, which also makes a marker, compares what it reads and
reports; processor time is that of the whole process for both.
"""

import argparse, json, os, re, shutil, statistics, subprocess, sys, tempfile, time


def timed(command):
    """Wall seconds, user and system seconds, and what it printed."""
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out = child.stdout.read()
    err = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: {child.returncode}\n{err}")
    return time.monotonic() - began, used.ru_utime, used.ru_stime, out


def postmark(dir, p, buffered):
    with tempfile.TemporaryDirectory(prefix="fsbench-peer-", dir=dir) as pool, tempfile.NamedTemporaryFile("w") as config:
        config.write(
            f"set location {pool}\nset number {p.files}\nset transactions {p.transactions}\nset size 8192 65536\n"
            f"set seed {p.seed}\nset buffering {str(buffered).lower()}\nrun\nquit\n"
        )
        config.flush()
        wall, user, system, out = timed(["postmark", config.name])
    counts = [int(re.search(rf"^\t(\d+) {word} ", out, re.M)[1]) for word in ("created", "read", "appended", "deleted")]
    return wall, user, system, counts


def fsbench(dir, p, buffered):
    with tempfile.TemporaryDirectory() as results:
        result = os.path.join(results, "result.json")
        options = {"processes": 1, "files": p.files, "transactions": p.transactions, "least": 8192, "most": 65536,
                   "block": 4096 if buffered else 512}
        command = [p.fsbench, "run", "postmark", "--preset", "paper", "--seed", str(p.seed), "--quiet-warnings",
                   "--json", result]
        for name, value in options.items():
            command += ["--set", f"{name}={value}"]
        _, user, system, _ = timed(command + [dir])
        with open(result) as file:
            run = json.load(file)["runs"][0]
    counts = {c["name"]: c["ops"] for c in run["classes"]}
    return run["elapsed_s"], user, system, [counts[n] for n in ("create", "read", "append", "delete")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", help="where both work")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=2500)
    parser.add_argument("--transactions", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fsbench", default="target/release/fsbench", help="the program [%(default)s]")
    p = parser.parse_args()
    if shutil.which("postmark") is None:
        sys.exit("postmark is not installed: apt-get install postmark")
    if shutil.which(p.fsbench) is None:
        sys.exit(f"{p.fsbench} is not there: cargo build --release -p fs2-tools --bin fsbench, or --fsbench PATH")
    print(f"{p.files} files, {p.transactions} transactions, seed {p.seed}, medians of {p.rounds} rounds; "
          f"fsbench / PostMark of each round, median")
    for buffered in (False, True):
        rounds = []
        for n in range(p.rounds):
            both = {}
            # Who begins changes.
            for program in (fsbench, postmark) if n % 2 == 0 else (postmark, fsbench):
                os.sync()
                both[program] = program(p.dir, p, buffered)
            a, b = both[fsbench], both[postmark]
            if a[3] != b[3]:
                sys.exit(f"operations differ: fsbench {a[3]}, PostMark {b[3]} (created, read, appended, deleted)")
            rounds.append((a, b))
        median = lambda of: statistics.median(of(a, b) for a, b in rounds)
        blocks = "4096 bytes (buffered)" if buffered else "512 bytes"
        created, read, appended, deleted = rounds[0][0][3]
        print(f"{blocks}: {created} created, {read} read, {appended} appended, {deleted} deleted by both")
        for name, of in (("time", lambda r: r[0]), ("processor", lambda r: r[1] + r[2]), ("of it user", lambda r: r[1])):
            print(f"  {name:<12} fsbench {median(lambda a, b: of(a)):7.3f} s  PostMark {median(lambda a, b: of(b)):7.3f} s"
                  f"  ratio {median(lambda a, b: of(a) / max(of(b), 1e-3)):.3f}")


main()
