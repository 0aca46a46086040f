#!/usr/bin/env python3
"""Makes the replay tables of docs/evaluation.md and docs/policy.md again, and prints what their text says about `fs2`.

    cargo build --release -p fs2-tools --bin fs2-replay
    benches/tables.py TRACES target/release/fs2-replay docs/evaluation.md docs/policy.md [--all] [--results DIR]

TRACES is a folder with the eight traces and their dumpe2fs listings. Each table is found by the words before it and rewritten in
place, row by row: `none`, `fs2` and B2o, with --all every scheme. Cells that changed are printed, old -> new. A table that is not as
it is known here is an error, and nothing is written then. What only a person can write again (text, goals) is printed as figures.
Only Python's own library is needed.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

# Where repeats begin, seconds.
SPLIT = {"cvs-update": "0,9.0,25.0", "startx-kde": "0,14.0,28.2,42.5,56.7"}
RECORDED = ["cvs-update", "startx-kde", "tpcw-shopping", "devtree", "fb-webserver"]
SERVERS = ["linux-mysql", "linux-webserver-2", "windows-mssql"]
# Parts of `fs2` that `--without` leaves out.
PARTS = """backlog updates merging batches pieces heat foresight remaking lookahead returns onward originals-chance admission streams slow-places nearby joins crowds trails trials pauses disturbance
slowest second-copies gate passing-over beside""".split()
EIGHT = ["--clients", "8", "--depth", "8", "--scheduler", "sptf"]
# Options of `run` by what the tables call them; DRIVE:A,B is wd800-repaired with A cache segments of B KiB.
VARIANTS = {
    "": [],
    "mismatched": ["--belief", "mismatched"],
    "seek-only": ["--belief", "seek-only"],
    "stretched": ["--stretch"],
    "nearline-hc310": ["--drive", "nearline-hc310"],
    "nearline-hc310, mismatched": ["--drive", "nearline-hc310", "--belief", "mismatched"],
    "laptop-5400": ["--drive", "laptop-5400"],
    "as above": [],
    **{f"without {p}": ["--without", p] for p in PARTS},
    "as above, by eight": EIGHT,
    **{f"without {p}, by eight": [*EIGHT, "--without", p] for p in PARTS},
    **{f"space {n} %": ["--space", f"{n}%"] for n in (1, 2, 10, 20, 40)},
    "free blocks drawn instead, 40 % in use": ["--used", "40%"],
    **{f"{n} % in use": ["--used", f"{n}%"] for n in (60, 80, 86, 88)},
    **{f"{n} s between runs": ["--idle-between", f"{n}s"] for n in (10, 1)},
    **{f"cache {n} x {kib} KiB": ["--drive", f"DRIVE:{n},{kib}"] for n, kib in ((8, 64), (2, 32))},
    **{f"depth {n}, {n} clients, SPTF": ["--depth", str(n), "--clients", str(n), "--scheduler", "sptf"] for n in (4, 32)},
}
# Of these there are tables of every scheme.
COMPARED = ["", "mismatched", "nearline-hc310", "laptop-5400"]
SCHEMES = {"none", "organ-pipe", "abr", "hot-files", "alis-heat", "alis-run", "borg", "sr-array", "fs2-static", "fs2-2005", "fs2", "B2o"}
# Rows of a belief that `run` does not offer, and of what is `none`.
NOT_MADE = {"90 % and more", "the same, believed to be 16 x 256 KiB"}


class Unknown(Exception):
    """A table that is not as it is known here."""


class Failed(Exception):
    """A replay that went wrong."""


class Replays:
    """What `fs2-replay` prints as JSON, each command once, two at a time."""

    def __init__(self, args, scratch):
        self.args, self.scratch, self.pool, self.started = args, scratch, ThreadPoolExecutor(2), {}

    def start(self, name, options):
        if name not in self.started:
            self.started[name] = self.pool.submit(self.run, name, options)
        return self.started[name]

    def run(self, name, options):
        kept = (self.args.results or self.scratch) / f"{name.replace('/', '-')}{' all' if self.args.all else ''}.json"
        if not kept.exists():
            done = subprocess.run([self.args.binary, *options, "--json"], capture_output=True)
            if done.returncode:
                raise Failed(f"{self.args.binary} {' '.join(map(str, options))}: {done.stderr.decode()}")
            kept.write_bytes(done.stdout)
        return json.loads(kept.read_text())

    def trace(self, trace, variant=""):
        if trace not in RECORDED + SERVERS or variant not in VARIANTS:
            raise Unknown(f"no trace '{trace}' under '{variant}'")
        options = [self.drive(o) for o in VARIANTS[variant]]
        every = self.args.all and VARIANTS[variant] in (VARIANTS[v] for v in COMPARED)
        policies = ["--closed-loop", "--policy", "all" if every else "none,fs2"]
        if trace in SERVERS:
            files = [self.args.traces / f"{trace}.load.gz"]
        else:
            files = [self.args.traces / f"{trace}.blkparse.txt.zst", "--event", "D"]
            files += [] if "--used" in options else ["--free-map", self.args.traces / f"{trace}.dumpe2fs.txt.zst"]
            files += ["--split", SPLIT[trace]] if trace in SPLIT else []
        return self.start(" ".join([trace, *VARIANTS[variant]]), ["run", *files, *policies, *options])

    def drive(self, option):
        """A drive with another cache, as a profile in a file."""
        if not option.startswith("DRIVE:"):
            return option
        segments, kib = option[6:].split(",")
        text = subprocess.run([self.args.binary, "profile", "show", "wd800-repaired"], capture_output=True, text=True, check=True).stdout
        text, n = re.subn(r"(?m)^segments = 16", f"segments = {segments}", text)
        text, k = re.subn(r"(?m)^segment_kib = 256", f"segment_kib = {kib}", text)
        assert n == k == 1, "wd800-repaired's cache is not 16 x 256 KiB"
        file = self.scratch / f"wd800-{segments}x{kib}.toml"
        file.write_text(text)
        return file

    def paper(self):
        return self.start("paper", ["paper", "--policy", "fs2-static,fs2-2005,fs2" if self.args.all else "fs2"])


def scheme(label):
    name = label.strip("`")
    if name not in SCHEMES:
        raise Unknown(f"scheme '{name}'")
    return name


def runs(result, policy):
    """A policy's runs and its single pass; of B2o what a read takes, under the same names."""
    if policy == "B2o":
        def named(bound):
            return {"t_a_reads_ms": bound["b2_order"]}

        return [named(b) for b in result["bounds"]["runs"]], named(result["bounds"]["single_pass"])
    found = [p for p in result["policies"] if p["name"] == policy]
    return (found[0]["runs"], found[0]["single_pass"]) if found else None


# One cell: from a trace's name, runs and single pass.
def first_and_last(_, runs, __):
    means = [f"{r['t_a_reads_ms']:.2f}" for r in runs]
    return " ".join(means if len(means) == 3 else [*means[:3], "…", means[-1]])


def ends(trace, runs, single):
    text = " ".join(f"{runs[i]['t_a_reads_ms']:.2f}" for i in (0, 1, -1))
    return text + (f" ({single['t_a_reads_ms']:.2f})" if trace in SPLIT else "")


def copies(_, runs, __):
    return " ".join(f"{runs[i]['copy_percent']:.0f}" for i in (0, 1, -1))


def last(_, runs, __):
    return f"{runs[-1]['t_a_ms']:.2f} / {runs[-1]['p99_reads_ms']:.1f}"


def chosen(numbers, dash):
    """The runs that a column's heading names."""
    return lambda _, runs, __: dash.join(f"{runs[n - 1]['t_a_reads_ms']:.2f}" for n in numbers)


# One table: gives for a cell (heading, row's labels) a function that makes it of results, or None where it stays.
def by_policy(cell, variant=""):
    def make(replays, heading, labels):
        future, policy = replays.trace(heading, variant), scheme(labels[0])
        return lambda: cell_of(future, heading, policy, cell)

    return make


def cell_of(future, trace, policy, cell):
    found = runs(future.result(), policy)
    return cell(trace, *found) if found else None


def transposed(replays, heading, labels):
    trace = labels[0].split(",")[0]
    future, policy = replays.trace(trace), scheme(heading)
    return lambda: cell_of(future, trace, policy, first_and_last)


def by_drive(replays, heading, labels):
    future, policy = replays.trace(heading, labels[0]), scheme(labels[1])
    return lambda: cell_of(future, heading, policy, ends)


def only(kept=(), clients=""):
    """Rows of `fs2` under other conditions, and of `none`; those of `kept` stay. `clients`: what the variants' names end with."""

    def make(replays, heading, labels):
        name = labels[0].split(" (`none`")[0]
        if name in kept:
            return lambda: None
        policy = "none" if name == "`none`" else "fs2"
        name = ("as above" if policy == "none" else name) + clients
        trace, numbers = re.fullmatch(r"([a-z-]+) (.*)", heading).groups()
        dash = " … " if "…" in numbers else " "
        future = replays.trace(trace, name)
        return lambda: cell_of(future, trace, policy, chosen([int(n) for n in re.findall(r"\d+", numbers)], dash))

    return make


PAPER = {"TPC-W": "tpcw", "CVS": "cvs", "X and KDE": "x", "SURGE": "surge"}
PAPER_COLUMNS = {"T_A": "t_a", "T_s": "t_s", "T_r": "t_r", "energy an access": "energy", "runtime": "runtime", "energy of the run": "total_energy"}


def paper(replays, heading, labels):
    future = replays.paper()
    workload, policy = labels[0].rsplit(", ", 1)
    if heading != "busy, %" and heading not in PAPER_COLUMNS:
        raise Unknown(f"column '{heading}'")

    def make():
        figures = next(w for w in future.result()["workloads"] if w["name"] == PAPER[workload])
        found = [p for p in figures["policies"] if p["name"] == policy]
        if not found:
            return None
        stated = (found[0]["paper"] or {}) if policy != "fs2" else {}

        def number(x):
            return f"{round(x)}"

        if heading == "busy, %":
            none = next(p for p in figures["policies"] if p["name"] == "none")["runs"][-1]["busy_percent"]
            text = f"{number(found[0]['runs'][-1]['busy_percent'])} of {number(none)}"
            return text + (f" ({number(stated['busy'])} of {number(figures['paper_busy_ext2_percent'])})" if stated.get("busy") else "")
        name = PAPER_COLUMNS[heading]
        value = found[0]["improvement"][name]
        if value is None:
            return ""
        return number(value) + (f" ({number(stated[name])})" if stated.get(name) is not None else "")

    return make


# By document: the words that begin the paragraph or heading before a table, how many labels a row has, how its cells are made.
TABLES = {
    "evaluation.md": [
        ("Mean T_A of reads in ms, runs 1, 2, 3 and last;", 1, transposed),
        ("Mean T_A of reads in ms: run 1, run 2, last run", 1, by_policy(ends)),
        ("Sectors written as copies or moved,", 1, by_policy(copies)),
        ("The last run: mean T_A of all requests,", 1, by_policy(last)),
        ("A mismatched belief (`--belief mismatched`;", 1, by_policy(ends, "mismatched")),
        ("Two other drives (", 2, by_drive),
        ("`fs2-replay paper` (", 1, paper),
    ],
    "policy.md": [
        ("One part left out at a time,", 1, only()),
        ("The same by eight clients", 1, only(clients=", by eight")),
        ("## What it needs", 1, only(NOT_MADE)),
    ],
}


def cells(line):
    return [c.strip() for c in line.strip().strip("|").split("|")] if line.startswith("|") else None


class Table:
    """The first table after some words, and what is to stand in its cells."""

    def __init__(self, lines, words, labels, make, replays):
        self.lines, self.words, self.labels = lines, words, labels
        try:
            begin = [i for i, line in enumerate(lines) if line.startswith(words)]
            if len(begin) != 1:
                raise Unknown(f"{len(begin)} paragraphs begin so")
            self.at = next((i for i in range(begin[0], len(lines)) if lines[i].startswith("|")), None)
            if self.at is None or not re.fullmatch(r"\|(---\|)+", lines[self.at + 1]):
                raise Unknown("no table follows")
            self.heading = cells(lines[self.at])
            self.rows = []
            for i in range(self.at + 2, len(lines)):
                row = cells(lines[i])
                if row is None:
                    break
                if len(row) != len(self.heading):
                    raise Unknown(f"line {i + 1} has {len(row)} cells, not {len(self.heading)}")
                self.rows.append((i, row, [make(replays, h, row[:labels]) for h in self.heading[labels:]]))
        except (Unknown, KeyError, AttributeError, ValueError) as e:
            raise Unknown(f"the table after '{words}': {e}") from e

    def fill(self):
        """Writes what changed, and says so."""
        for i, row, makers in self.rows:
            for column, make in enumerate(makers, self.labels):
                new = make()
                if new is not None and new != row[column]:
                    print(f"  {', '.join(row[:self.labels])} | {self.heading[column]}: {row[column]} -> {new}")
                    row[column] = new
            self.lines[i] = "".join(f"| {c} " if c else "| " for c in row) + "|"


def won(result, key, of=None):
    """Per cent less than `none`, of each run."""
    (none, _), (ours, _) = runs(result, "none"), runs(result, "fs2")
    return [100 * (1 - o[key] / n[of or key]) for n, o in zip(none, ours)]


def listed(values):
    return " ".join(f"{v:.1f}" for v in values)


def text(replays):
    """What docs/policy.md and docs/evaluation.md say in words."""
    settings = {v: {t: replays.trace(t, v) for t in RECORDED + SERVERS} for v in ("", "mismatched", "nearline-hc310", "nearline-hc310, mismatched")}
    settings |= {v: {t: replays.trace(t, v) for t in RECORDED} for v in ("seek-only", "stretched")}
    settings = {v: {t: f.result() for t, f in results.items()} for v, results in settings.items()}
    print("\nFor the text.\nT_A of reads won, % of none's, by run:")
    for setting, results in settings.items():
        for trace, result in results.items():
            means = [f"{r['t_a_reads_ms']:.2f}" for r in runs(result, "fs2")[0]]
            none = [f"{r['t_a_reads_ms']:.2f}" for r in runs(result, "none")[0]]
            print(f"  {setting or 'as it is':28}{trace:18} {listed(won(result, 't_a_reads_ms'))}; {' '.join(means)} of {' '.join(none)} ms")
    # wd800-repaired takes 8 W, and 14 W while it seeks.
    for run in (run for result in settings[""].values() for name in ("none", "fs2") for run in runs(result, name)[0]):
        run["energy of a read"] = 8 * run["t_a_reads_ms"] + 6 * run["t_s_reads_ms"]
    for setting, results in settings.items():
        print(f"{setting or 'as it is'}: the last run, median of {len(results)}:")
        keys = ["t_a_reads_ms", "t_s_reads_ms", "t_r_reads_ms", "t_s_ms", "t_r_ms", "p99_reads_ms"]
        for key in keys + ([] if setting else ["energy_mj_per_access", "energy of a read"]):
            shares = sorted((won(r, key)[-1] for r in results.values()), reverse=True)
            print(f"  {key:22} {median(shares):5.1f} ({listed(shares)})")
        print("By trace: copies in % of the traffic by run; first run with 90 % of the gain; more than none in %: response of reads, of all, its p99; p99 of T_A of reads:")
        for trace, result in results.items():
            ours = next(p for p in result["policies"] if p["name"] == "fs2")
            more = ["; ".join(listed(-x for x in won(result, k)) for k in ("response_reads_ms", "response_ms", "p99_response_ms", "p99_reads_ms"))]
            print(f"  {trace:18} {listed(r['copy_percent'] for r in ours['runs'])}; {ours['warm_up_runs']}; {more[0]}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("traces", type=Path, help="the folder with the traces")
    p.add_argument("binary", type=Path, help="fs2-replay")
    p.add_argument("documents", type=Path, nargs="+", help="evaluation.md, policy.md")
    p.add_argument("--all", action="store_true", help="every scheme's rows, not only none's, fs2's and B2o's")
    p.add_argument("--results", type=Path, help="keep the JSON here; what is there is not run again")
    a = p.parse_args()
    if a.results:
        a.results.mkdir(parents=True, exist_ok=True)
    if unknown := [d for d in a.documents if d.name not in TABLES]:
        sys.exit(f"{unknown[0]}: not a document with replay tables; there are {', '.join(TABLES)}")
    with tempfile.TemporaryDirectory() as scratch:
        replays = Replays(a, Path(scratch))
        texts = {d: d.read_text().split("\n") for d in a.documents}
        try:
            tables = [(d, Table(lines, *known, replays)) for d, lines in texts.items() for known in TABLES[d.name]]
            for document, table in tables:
                print(f"{document}, {table.words}")
                table.fill()
            text(replays)
        except (Unknown, Failed) as e:
            replays.pool.shutdown(cancel_futures=True)
            sys.exit(f"nothing written: {e}")
    for document, lines in texts.items():
        document.write_text("\n".join(lines))


main()
