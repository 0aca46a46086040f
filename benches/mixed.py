#!/usr/bin/env python3
"""Where a policy is worse than `none` on workloads nobody chose: by seed, `fs2-replay generate mixed` on a drive, with a belief, room,
rest and clients that the seed draws, too.

    benches/mixed.py [--seeds 1:501] [--policy fs2] [--rows 12] [--program target/release/fs2-replay] [--jobs 2]
    benches/mixed.py --seeds 42:43 -- --without gate      # options behind -- are the policy's alone
    benches/mixed.py --beside borg,alis-run               # what other schemes gain of the same

Of each run the mean response of all requests and its 99th percentile, waits behind copies included, in per cent of `none`'s; the worst
are listed with the commands that replay them; small-cache.toml is wd800-repaired with two segments of 32 KiB, as in worst.toml. Requests are 10 to 100 ms apart, so that no drive is overloaded but by bursts: where one is, a
little difference at the beginning grows without bound, and `none` differs from itself by as much. Only Python's own library is needed.
"""
import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RUNS = 3
DRIVES = {"wd800-repaired": 60, "cheetah-15k5": 60, "nearline-hc310": 2000, "laptop-5400": 250, "exos-x24": 2000}
SMALL_CACHE = [("segments = 16", "segments = 2"), ("segment_kib = 256", "segment_kib = 32")]


def drawn(seed, small_cache):
    """The options of `generate` and of `run`."""
    draw = random.Random(seed)
    gib = draw.choice([4, 8, 20, 40, 70])
    made = ["--gib", gib, "--requests", draw.choice([2000, 5000, 10000]), "--gap", draw.choice(["10ms", "40ms", "100ms"])]
    made += ["--writes", draw.choice(["0%", "5%", "30%"]), "--seed", seed]
    drives = [name for name, most in DRIVES.items() if gib <= most] + ([small_cache] if gib <= 60 else [])
    run = ["--drive", draw.choice(drives)]
    run += ["--belief", draw.choice(["equal", "mismatched", "mismatched", "seek-only", "nothing", "write-cache"])]
    run += ["--used", draw.choice(["40%", "60%", "80%"]), "--space", draw.choice(["1%", "5%"])]
    run += ["--runs", RUNS, "--idle-between", draw.choice(["1s", "60s"])]
    queue = ["--depth", 8, "--scheduler", "sptf"]
    run += draw.choice([[], queue, ["--closed-loop"], ["--closed-loop", "--clients", 8, *queue]])
    return made, run


def ask(program, *options):
    ended = subprocess.run([program, *map(str, options)], capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, options))}: {ended.stderr.strip()}")
    return ended.stdout


def replay(a, scratch, seed):
    made, run = drawn(seed, scratch / "small-cache.toml")
    trace = scratch / f"{seed}.fs2trace"
    ask(a.program, "generate", "mixed", trace, *made)
    policies = [json.loads(ask(a.program, "run", trace, "--json", "--policy", policy, *run, *more))["policies"][0]["runs"]
                for policy, more in [("none", []), (a.policy, a.more), *((other, []) for other in a.beside)]]
    trace.unlink()
    none, ours, *others = policies

    def more(runs, field):
        return [100 * (one[field] / plain[field] - 1) if plain[field] else 0.0 for plain, one in zip(none, runs)]

    fields = [("mean", "response_ms"), ("p99", "p99_response_ms"), ("reads", "t_a_reads_ms")]
    return {"seed": seed, "none_ms": none[0]["response_ms"], **{name: more(ours, field) for name, field in fields},
            "others": {other: more(runs, "response_ms") for other, runs in zip(a.beside, others)}, "generate": made, "run": run}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="target/release/fs2-replay")
    p.add_argument("--policy", default="fs2")
    p.add_argument("--beside", default=[], type=lambda names: names.split(","), metavar="POLICY,...")
    p.add_argument("--seeds", default="1:501", metavar="FROM:TO")
    p.add_argument("--rows", type=int, default=12)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--json", action="store_true", help="one line for each seed")
    p.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    a = p.parse_args()
    seeds = range(*map(int, a.seeds.split(":")))
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        profile = ask(a.program, "profile", "show", "wd800-repaired")
        for there, instead in SMALL_CACHE:
            assert there in profile, there
            profile = profile.replace(there, instead)
        (scratch / "small-cache.toml").write_text(profile)
        done = []
        with ThreadPoolExecutor(a.jobs) as jobs:
            for one in jobs.map(lambda seed: replay(a, scratch, seed), seeds):
                done.append(one)
                if a.json:
                    print(json.dumps(one, default=str), flush=True)
                elif sys.stderr.isatty():
                    print(f"\r{len(done)} of {len(seeds)}", end="", file=sys.stderr, flush=True)
    if a.json:
        return
    for other in a.beside:
        by_run = [statistics.mean(d["others"][other][run] for d in done) for run in range(RUNS)]
        print(f"{other}: mean of the response, runs 1 to {RUNS}: {' '.join(f'{v:+.1f}' for v in by_run)} %")
    if a.beside:
        best = sum(d["mean"][-1] <= min(runs[-1] for runs in d["others"].values()) for d in done)
        print(f"{a.policy} is the best of them in the last run of {best} of {len(done)}")
    for name, limit in [("mean", 1), ("p99", 2)]:
        by_run = [statistics.mean(d[name][run] for d in done) for run in range(RUNS)]
        above = sum(v > limit for d in done for v in d[name])
        print(f"{name} of the response, runs 1 to {RUNS}: {' '.join(f'{v:+.1f}' for v in by_run)} %; "
              f"above {limit} % in {above} of {len(done) * RUNS}; the worst:")
        for d in sorted(done, key=lambda d: -max(d[name]))[: a.rows]:
            figures = "  ".join(f"{n} " + " ".join(f"{v:+.1f}" for v in d[n]) for n in ("mean", "p99", "reads"))
            print(f"  {figures}  of {d['none_ms']:.1f} ms")
            made, run = (" ".join(Path(o).name if str(o).endswith(".toml") else str(o) for o in d[k]) for k in ("generate", "run"))
            print(f"    generate mixed T {made}; run T --policy none,{a.policy} {run}")


if __name__ == "__main__":
    main()
