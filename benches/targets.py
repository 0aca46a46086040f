#!/usr/bin/env python3
"""Makes docs/targets.md: every trace under every scheme, by drive, belief and distance, beside every bound.

    cargo build --release -p fs2-tools --bin fs2-replay
    benches/targets.py TRACES target/release/fs2-replay docs/targets.md --results DIR

TRACES is a folder with the eight traces and their dumpe2fs listings. What was replayed is kept in DIR: the same command goes on after a stop, and makes the
page again in no time. Half an hour on two cores, a few minutes with `--only fs2`, which leaves the other rows as they are. Only Python's own library is needed.
"""
import argparse
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

SPLIT = {"cvs-update": [0, 9.0, 25.0], "startx-kde": [0, 14.0, 28.2, 42.5, 56.7]}
RECORDED = ["cvs-update", "startx-kde", "tpcw-shopping", "devtree", "fb-webserver"]
SERVERS = ["linux-mysql", "windows-mssql", "linux-webserver-2"]
# A volume of 716 GiB: wd800-repaired has to be extended, and there is nothing to stretch.
WIDE = "linux-webserver-2"
RUNS = 7
SCHEMES = ["none", "organ-pipe", "abr", "hot-files", "alis-heat", "alis-run", "borg", "sr-array", "fs2-static", "fs2-2005", "fs2"]
DRIVES = ["wd800-repaired", "nearline-hc310"]
BELIEFS = ["equal", "mismatched", "seek-only"]
BOUNDS = {
    "B0": "b0",
    "B1": "b1",
    "B2": "b2_reuse",
    "B2, strictly": "b2_reuse_strict",
    "B2 with writes": "b2_reuse_w",
    "the same, strictly": "b2_reuse_w_strict",
    "B2o": "b2_order",
}
INTRO = """# Every trace, scheme, drive and belief

Made by `benches/targets.py TRACES target/release/fs2-replay docs/targets.md --results DIR`{date}; what it shows is in [evaluation.md](evaluation.md) and
[policy.md](policy.md). Mean T_A of reads in ms: run 1, run 2, last run (the third of cvs-update, the fifth of startx-kde, else the seventh); of these two
the whole trace as one pass in brackets. FCFS, depth 1, closed loop, 5 % space, 60 s between runs; the last three traces have free blocks drawn, 60 % in use. A mismatched belief
is of another drive's zones and skews, of a speed 0.02 % and seeks 10 % off, and knows neither where 2 % of the sectors lie nor, to 20 to 100 µs, when requests end; a belief in seeks
knows nothing of the platter. Stretched, the volume's block groups lie apart until they fill
the drive; linux-webserver-2's is of 716 GiB: for it wd800-repaired was extended, and seeks beyond its full stroke are extrapolated.
"""


def plan(traces, names, stretch, schemes):
    lines = ["[options]", "closed-loop = true", "seed = 1", *(["stretch = true"] if stretch else []), "", "[axes]"]
    lines += [f"policy = {json.dumps(schemes)}", f"drive = {json.dumps(DRIVES)}", f"belief = {json.dumps(BELIEFS)}"]
    for name in names:
        lines += ["", "[[trace]]", f'name = "{name}"']
        if name in SERVERS:
            lines += [f'files = ["{traces / name}.load.gz"]', 'used = "60%"', f"runs = {RUNS}"]
        else:
            lines += [f'files = ["{traces / name}.blkparse.txt.zst"]', f'free-map = "{traces / name}.dumpe2fs.txt.zst"', 'event = "D"']
            lines += [f"split = {SPLIT[name]}"] if name in SPLIT else [f"runs = {RUNS}"]
    return "\n".join(lines) + "\n"


def sweep(a, what, text):
    """Results by drive, belief, trace, scheme."""
    at = a.results / what
    at.mkdir(parents=True, exist_ok=True)
    file = at / "plan.toml"
    file.write_text(text)
    subprocess.run([a.binary, "sweep", file, "--out", at, "--jobs", str(a.jobs)], check=True)
    found = defaultdict(dict)
    for line in (at / "shard-1-of-1.jsonl").read_text().splitlines():
        one = json.loads(line)
        options = one["cell"]["options"]
        found[options["drive"], options["belief"]][one["cell"]["trace"], options["policy"]] = one["result"]
    return found


def shown(trace, runs, single):
    runs = runs[:2] + runs[-1:]
    return " ".join(f"{t:.2f}" for t in runs) + (f" ({single:.2f})" if trace in SPLIT else "")


def scheme(trace, result):
    if result is None:
        return ""
    (policy,) = result["policies"]
    return shown(trace, [r["t_a_reads_ms"] for r in policy["runs"]], policy["single_pass"]["t_a_reads_ms"])


def bound(trace, result, key):
    return shown(trace, [r[key] for r in result["bounds"]["runs"]], result["bounds"]["single_pass"][key])


def table(head, traces, rows):
    yield f"| {head} | {' | '.join(traces)} |"
    yield "|" + "---|" * (len(traces) + 1)
    for label, cells in rows:
        yield "".join(f"| {c} " if c else "| " for c in [label, *cells]) + "|"
    yield ""


def again(a, traces):
    """Puts rows of one scheme, and of the bounds, in place of those of the page, whose tables come drive by drive and belief by belief."""
    rows = {label: [] for label in (f"`{a.only}`", *BOUNDS)}
    for stretch in (False, True):
        names = [t for t in RECORDED + SERVERS if not stretch or t != WIDE]
        found = sweep(a, "stretched" if stretch else "recorded", plan(traces, names, stretch, [a.only]))
        for drive in DRIVES:
            for belief in BELIEFS:
                cells = [scheme(t, found[drive, belief].get((t, a.only))) for t in names]
                rows[f"`{a.only}`"] += list(table("scheme", names, [(f"`{a.only}`", cells)]))[2:3]
            equal = found[drive, "equal"]
            for label, key in BOUNDS.items():
                rows[label] += list(table("bound", names, [(label, [bound(t, equal[t, a.only], key) for t in names])]))[2:3]
    lines = a.page.read_text().splitlines()
    for label, made in rows.items():
        places = [i for i, line in enumerate(lines) if line.startswith(f"| {label} |")]
        if len(places) != len(made):
            sys.exit(f"{a.page} has {len(places)} rows of {label}, not {len(made)}")
        for i, row in zip(places, made, strict=True):
            lines[i] = row
    a.page.write_text("\n".join(lines) + "\n")
    print(f"{a.page}: {sum(map(len, rows.values()))} rows written")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("traces", type=Path, help="the folder with the traces")
    p.add_argument("binary", type=Path, help="fs2-replay")
    p.add_argument("page", type=Path, help="what to write")
    p.add_argument("--results", type=Path, required=True, metavar="DIR", help="where replays are kept")
    p.add_argument("--jobs", type=int, default=2, metavar="N", help="replays at a time [2]")
    p.add_argument("--date", default="", help="the day of these figures, for the page")
    p.add_argument("--only", choices=SCHEMES, help="replay this scheme alone, and put its rows and the bounds' in place of the page's")
    a = p.parse_args()
    traces = a.traces.resolve()
    if a.only:
        return again(a, traces)
    out = [INTRO.format(date=f", {a.date}" if a.date else "")]
    for stretch in (False, True):
        names = [t for t in RECORDED + SERVERS if not stretch or t != WIDE]
        found = sweep(a, "stretched" if stretch else "recorded", plan(traces, names, stretch, SCHEMES))
        for drive in DRIVES:
            out += [f"## {drive}, {'stretched' if stretch else 'as recorded'}"]
            for belief in BELIEFS:
                cells = found[drive, belief]
                rows = [(f"`{s}`", [scheme(t, cells.get((t, s))) for t in names]) for s in SCHEMES]
                out += [f"Belief {belief}:\n", *table("scheme", names, rows)]
            cells = found[drive, "equal"]
            rows = [(label, [bound(t, cells[t, "none"], key) for t in names]) for label, key in BOUNDS.items()]
            out += ["Bounds:\n", *table("bound", names, rows)]
    a.page.write_text("\n".join(out).rstrip() + "\n")
    print(f"{a.page}: written")


if __name__ == "__main__":
    sys.exit(main())
