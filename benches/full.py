#!/usr/bin/env python3
"""What a volume that is full of copies does when other things are read than before, or more than it may hold.

    benches/full.py [--program target/release/fs2-replay] [--only junk,small]
    benches/full.py -- --space 2%      # options behind -- are of `fs2-replay run`

Volumes of 10 GiB with room for 26,000 copies, files of 1, 2, 4 and 8 blocks anywhere, one request each; a line for each workload: the
mean T_A of reads in ms of each run, by `none` in the mean of all. Only Python's own library is needed.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

SPAN = 10 * 2**30 // 4096 - 1000
GAP_S = 0.02


def workloads():
    """By name, what it is and its runs: lists of (first block, blocks)."""
    draw = random.Random(5)

    def files(n, lengths=(1, 2, 4, 8)):
        return [(draw.randrange(SPAN), draw.choice(lengths)) for _ in range(n)]

    def tour(files):
        """In the same order but for one in twenty."""
        order = list(files)
        for i in range(len(order)):
            if draw.random() < 0.05:
                j = min(len(order) - 1, i + draw.randrange(1, 20))
                order[i], order[j] = order[j], order[i]
        return order

    def popular(files, n):
        return draw.choices(files, [1 / (i + 1) ** 0.9 for i in range(len(files))], k=n)

    scanned, some, many, others, more = files(10000), files(2000), files(6000), files(6000), files(20000)
    small = files(16000, (1, 2))
    yield "junk", "10,000 files once, then 2,000 over and over", [scanned] + [tour(some) for _ in range(14)]
    yield "small", "6,000 files six times, then 2,000", [tour(many) for _ in range(6)] + [tour(some) for _ in range(20)]
    yield "big", "6,000 files six times, then 6,000 others", [tour(many) for _ in range(6)] + [tour(others) for _ in range(20)]
    yield "both", "6,000 files six times, then 2,000 beside them", [tour(many) for _ in range(6)] + [tour(many) + tour(some) for _ in range(12)]
    yield "popular", "16,000 files by popularity, which turns round after eight runs", (
        [popular(small, 4000) for _ in range(8)] + [popular(small[::-1], 4000) for _ in range(16)])
    yield "loop", "20,000 files over and over, three times the room", [tour(more) for _ in range(8)]


def write(path, runs):
    """A trace in SPC's format; returns when its runs begin."""
    at, begins = 0.0, []
    with open(path, "w") as f:
        for run in runs:
            begins.append(f"{at:.3f}")
            for block, blocks in run:
                f.write(f"0,{block * 8},{blocks * 4096},r,{at:.6f}\n")
                at += GAP_S
            at += 1.0
    return ",".join(begins)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="target/release/fs2-replay")
    p.add_argument("--only", help="names, separated by commas")
    p.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for name, what, runs in workloads():
            if a.only and name not in a.only.split(","):
                continue
            trace = Path(scratch) / f"{name}.spc"
            begins = write(trace, runs)
            command = [a.program, "run", trace, "--format", "spc", "--policy", "none,fs2", "--split", begins, "--runs", "1"]
            command += ["--closed-loop", "--used", "60%", "--space", "1%", "--json"]
            for option in a.more:
                if option in command:
                    at = command.index(option)
                    del command[at:at + 2]
            ended = subprocess.run(list(map(str, command + a.more)), capture_output=True, text=True)
            if ended.returncode:
                sys.exit(ended.stderr.strip())
            none, ours = (policy["runs"] for policy in json.loads(ended.stdout)["policies"])
            mean = sum(run["t_a_reads_ms"] for run in none) / len(none)
            copied = [f"{run['copy_percent']:.0f}" for run in ours]
            print(f"{name}: {what}; none {mean:.2f}", f"  T_A  {' '.join('%.2f' % run['t_a_reads_ms'] for run in ours)}",
                  f"  copies, % of the traffic  {' '.join(copied)}", sep="\n", flush=True)


if __name__ == "__main__":
    main()
