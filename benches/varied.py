#!/usr/bin/env python3
"""What policies gain where repeats are alike, not the same: mailboxes, films, pages, tables, of which each pass reads others in another order.

    benches/varied.py [--policies none,fs2,borg,alis-run,hot-files] [--kinds web,mail] [--seeds 1:2] [--program target/release/fs2-replay] [--jobs 2]
    benches/varied.py --policies none,fs2 --kinds streams -- --without streams        # options behind -- are for every policy
    benches/varied.py --policies none,fs2 --burst 8 --seeds 1:5                       # at their own times

Five passes with a minute between them, of 3,000 requests or as many as the kind has, on a volume of 40 GiB of which 60 % are in use; the mean response of each
pass in ms, and its 99th percentile. Each kind on wd800-repaired with a true belief, on nearline-hc310 with a mismatched one, and on wd800-repaired, mismatched, with four clients.
With --burst N requests come at their own times, N at once in the mean, whether those before them were answered or not, and the drive is busy for half of the time; the third
setting is a drive that takes eight and orders them then. Only Python's own library is needed. In the end, of all seeds together, what the second policy has of
the first's mean response, and where it has more by twice the error of the mean.
"""
import argparse
import bisect
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PASSES, REQUESTS, GIB, GAP_S, REST_S = 5, 3000, 40, 0.02, 60
# Of requests that come at once, from one to the next.
TOGETHER_S = 0.0001
BLOCK, GROUP = 4096, 32768
BLOCKS = GIB * (1 << 30) // BLOCK
SETTINGS = {
    "wd800-repaired": ["--drive", "wd800-repaired"],
    "nearline-hc310, mismatched": ["--drive", "nearline-hc310", "--belief", "mismatched"],
    "by four": ["--drive", "wd800-repaired", "--belief", "mismatched", "--clients", 4, "--depth", 8, "--scheduler", "sptf"],
}


# Where requests come at their own times.
OPEN = {
    "wd800-repaired": ["--drive", "wd800-repaired"],
    "nearline-hc310, mismatched": ["--drive", "nearline-hc310", "--belief", "mismatched"],
    "eight at the drive": ["--drive", "wd800-repaired", "--belief", "mismatched", "--depth", 8, "--scheduler", "sptf"],
}


class Volume:
    """An aged volume: files in their directory's group with gaps between them, one in five torn."""

    def __init__(self, draw):
        self.draw = draw
        self.next = [2000 + draw.randrange(500) for _ in range(BLOCKS // GROUP)]

    def group(self):
        return self.draw.randrange(len(self.next))

    def file(self, group, blocks):
        parts = []
        while blocks:
            part = blocks if self.draw.random() < 0.8 else self.draw.randint(1, blocks)
            self.next[group] += self.draw.choice([0, 0, 1, 4, 16, 60])
            if self.next[group] + part > GROUP - 768:
                group = self.group()
                continue
            parts.append((group * GROUP + self.next[group], part))
            self.next[group] += part
            blocks -= part
        return parts

    def spot(self, blocks=8):
        return self.draw.randrange(BLOCKS - blocks)


def popular(draw, n, theta):
    """Draws one of n, the kth most popular with a weight of 1/k^theta, and who is which."""
    weights = [1 / (k + 1) ** theta for k in range(n)]
    sums = list(itertools.accumulate(weights))
    who = list(range(n))
    draw.shuffle(who)
    return (lambda: who[min(n - 1, bisect.bisect(sums, draw.random() * sums[-1]))]), who


def reads(parts):
    return [("R", *part) for part in parts]


def passes(some):
    """Five passes, each of at least so many requests of what `some` gives, again and again."""
    for _ in range(PASSES):
        requests = []
        while len(requests) < REQUESTS:
            requests += some()
        yield requests


def web(draw, drift=0.0, in_order=True):
    """Pages and what they show, from 40 directories; popularity may drift, and what a page shows come in any order."""
    volume = Volume(draw)
    directories = [volume.group() for _ in range(40)]
    files = [volume.file(draw.choice(directories), draw.choice([1, 1, 2, 3, 6, 12])) for _ in range(3000)]
    shown = lambda: [files[int(len(files) * draw.random() ** 2)] for _ in range(draw.randint(3, 12))]
    pages = [[volume.file(draw.choice(directories), draw.choice([1, 2, 3])), *shown()] for _ in range(500)]
    pick, who = popular(draw, 500, 0.8)

    def page():
        first, *rest = pages[pick()]
        if not in_order:
            draw.shuffle(rest)
        return [r for parts in [first, *rest] for r in reads(parts)]

    for requests in passes(page):
        yield requests
        for _ in range(int(drift * 250)):
            a, b = draw.randrange(500), draw.randrange(500)
            who[a], who[b] = who[b], who[a]


def mail(draw):
    """Mailboxes that are read whole or at their end, while others' messages come in."""
    volume = Volume(draw)
    boxes = [[] for _ in range(300)]
    pick, _ = popular(draw, 300, 0.7)
    spool = [volume.group() for _ in range(6)]

    def deliver():
        parts = volume.file(draw.choice(spool) if draw.random() < 0.9 else volume.group(), draw.choice([1, 1, 2, 2, 4, 10]))
        boxes[pick()].append(parts)
        return [("W", *part) for part in parts]

    for _ in range(8000):
        deliver()
    for box in boxes:
        del box[:-60]

    def some():
        if draw.random() < 0.15:
            return deliver()
        return [r for parts in boxes[pick()][-draw.choice([10, 60]):] for r in reads(parts)]

    return passes(some)


def boots(draw, together):
    """Six machines' images that boot alike, in turns or one after the other, with one read of twenty elsewhere."""
    size = BLOCKS // 8
    sequence, at = [], 0
    for _ in range(700):
        at = draw.randrange(size - 64) if draw.random() < 0.5 else at
        sequence.append((at, draw.choice([1, 1, 2, 4, 8, 16])))
        at = min(at + sequence[-1][1], size - 64)
    for _ in range(PASSES):
        elsewhere = lambda part: part if draw.random() > 0.05 else (draw.randrange(BLOCKS - 64), part[1])
        machines = [[elsewhere((image * size + at, n)) for at, n in sequence] for image in range(6)]
        draw.shuffle(machines)
        requests = []
        while machines:
            machine = draw.choice(machines) if together else machines[0]
            for _ in range(draw.choice([1, 1, 2, 5])):
                requests += reads([machine.pop(0)]) if machine else []
            machines = [m for m in machines if m]
        yield requests


def table(draw, theta, writes):
    """Rows by their keys: a leaf of the index, the row, and now and then the row again."""
    leaves = [draw.randrange(BLOCKS // 8) for _ in range(3000)]
    rows = [BLOCKS // 4 + draw.randrange(BLOCKS // 4) for _ in range(12000)]
    pick, _ = popular(draw, 12000, theta)

    def some():
        key = pick()
        return [("R", leaves[key // 4], 1), ("R", rows[key], 1)] + ([("W", rows[key], 1)] if draw.random() < writes else [])

    return passes(some)


def ranges(draw):
    """Rows in the order of an index, that lie anywhere."""
    volume = Volume(draw)
    rows = [volume.spot() for _ in range(20000)]
    pick, _ = popular(draw, 400, 0.7)

    def some():
        first = pick() * 50 + draw.randrange(20)
        writes = [("W", rows[first % 20000], 1)] if draw.random() < 0.3 else []
        return [("R", rows[i % 20000], 1) for i in range(first, first + draw.randint(5, 40))] + writes

    return passes(some)


def photos(draw):
    """Directories of small pictures, each looked through from its beginning."""
    volume = Volume(draw)
    directories = []
    for _ in range(150):
        group = volume.group()
        place = lambda: group if draw.random() < 0.8 else volume.group()
        directories.append([volume.file(place(), 2) for _ in range(draw.randint(20, 120))])
    pick, _ = popular(draw, 150, 0.6)
    return passes(lambda: [r for parts in directories[pick()] for r in reads(parts)])


def streams(draw):
    """Six of twenty films at a time, from near their beginnings, in any turns; every fifth read is of something else."""
    volume = Volume(draw)
    films = [volume.spot(200_000) for _ in range(20)]
    spots = [volume.spot() for _ in range(2000)]
    pick, _ = popular(draw, 2000, 0.8)
    for _ in range(PASSES):
        at = [films[draw.randrange(20)] + 16 * draw.randrange(100) for _ in range(6)]
        requests = []
        while len(requests) < REQUESTS:
            if draw.random() < 0.2:
                requests.append(("R", spots[pick()], 1))
            else:
                film = draw.randrange(6)
                requests.append(("R", at[film], 16))
                at[film] += 16
        yield requests


def scan(draw):
    """A backup that reads all from the beginning, and who works meanwhile."""
    volume = Volume(draw)
    spots = [volume.spot() for _ in range(3000)]
    pick, _ = popular(draw, 3000, 0.9)
    for _ in range(PASSES):
        at, requests = 0, []
        while len(requests) < REQUESTS:
            if draw.random() < 0.4:
                requests.append(("R", at, 32))
                at += 32
            else:
                requests.append(("R", spots[pick()], draw.choice([1, 2])))
        yield requests


def parts(draw):
    """Sixty sequences, of which from anywhere on some is read."""
    volume = Volume(draw)
    sequences = [[volume.spot() for _ in range(100)] for _ in range(60)]
    pick, _ = popular(draw, 60, 0.6)

    def some():
        first = draw.randrange(100)
        return [("R", spot, 1) for spot in sequences[pick()][first : first + draw.randint(5, 50)]]

    return passes(some)


def update(draw):
    """A tree that is read whole, a twentieth of its files replaced as they are read, two directories in the other order."""
    volume = Volume(draw)
    directories = [(volume.group(), []) for _ in range(60)]
    for _ in range(1200):
        group, files = draw.choice(directories)
        files.append(volume.file(group, draw.choice([1, 1, 2, 4, 8])))
    tables = [volume.file(group, 1) for group, _ in directories]
    for number in range(PASSES):
        order = list(range(60))
        if number:
            a, b = draw.randrange(60), draw.randrange(60)
            order[a], order[b] = order[b], order[a]
        requests = []
        for directory in order:
            group, files = directories[directory]
            requests += reads(tables[directory])
            for i, old in enumerate(files):
                requests += reads(old)
                if draw.random() < 0.05:
                    files[i] = volume.file(group, draw.choice([1, 2, 4]))
                    requests += [("W", *part) for part in files[i]]
        yield requests


def sources(draw):
    """Directories of a tree, each with all of its files in the order of their addresses."""
    volume = Volume(draw)
    directories = []
    for _ in range(120):
        group = volume.group()
        files = [part for _ in range(draw.randint(20, 400)) for part in volume.file(group, draw.choice([1, 1, 2, 4, 8]))]
        directories.append(sorted(files))
    pick, _ = popular(draw, 120, 0.5)
    return passes(lambda: reads(directories[pick()]))


def downloads(draw):
    """Popular files of one to four MiB, each from its beginning to its end."""
    volume = Volume(draw)
    files = [volume.file(volume.group(), 256 * draw.choice([1, 1, 2, 4])) for _ in range(400)]
    pick, _ = popular(draw, 400, 0.9)
    pieces = lambda at, n: [("R", at + i, min(32, n - i)) for i in range(0, n, 32)]
    return passes(lambda: [piece for part in files[pick()] for piece in pieces(*part)])


def queries(draw):
    """Terms looked up in each of an index's segments, and the documents found; after each pass the three smallest are merged."""
    volume = Volume(draw)
    segment = lambda blocks: (volume.spot(blocks), blocks)
    segments = [segment(n) for n in (24000, 12000, 6000, 3000, 1500, 700, 300, 300)]
    pick, _ = popular(draw, 4000, 0.9)

    def some():
        found = []
        for _ in range(draw.choice([1, 2, 3])):
            term = random.Random(pick())
            for at, n in segments:
                terms, listed = n // 40, max(1, min(32, int(n / 600 * (1 - term.random()) ** 2)))
                found += [("R", at + term.randrange(terms), 1), ("R", at + terms + term.randrange(n // 2 - listed), listed)]
        for _ in range(draw.choice([3, 5, 10])):
            at, n = draw.choices(segments, [n for _, n in segments])[0]
            found.append(("R", at + n - n // 3 + int(n / 3 * draw.random() ** 2), 1))
        return found

    for requests in passes(some):
        yield requests
        segments[-3:] = [segment(sum(n for _, n in segments[-3:])), segment(300), segment(300)]


def mailboxes(draw):
    """Mailboxes of a file each, looked at in their first block, read on from near their end, and appended to."""
    volume = Volume(draw)
    boxes = [[volume.spot(4000), draw.randint(50, 2000)] for _ in range(150)]
    pick, _ = popular(draw, 150, 0.7)

    def some():
        box = boxes[pick()]
        at, n = box
        if draw.random() < 0.4:
            box[1] = min(n + 2, 4000)
            return [("R", at, 1), ("W", at + n - 1, 2)]
        first = 0 if draw.random() < 0.2 else max(0, n - draw.randint(8, 100))
        return [("R", at, 1)] + [("R", at + i, min(16, n - i)) for i in range(first, n, 16)]

    return passes(some)


def torrents(draw):
    """Large files, popular or not, of which so much is read from anywhere on."""
    volume = Volume(draw)
    files = [volume.spot(60_000) for _ in range(40)]
    pick, _ = popular(draw, 40, 1.2)

    def some():
        at = files[pick()] + draw.randrange(230) * 256
        return [("R", at + i, 16) for i in range(0, draw.choice([16, 64, 256]), 16)]

    return passes(some)


def sets(draw):
    """Sets of blocks that lie close together, of each of which some are read in any order."""
    volume = Volume(draw)
    places = [volume.spot(600) for _ in range(150)]
    pick, _ = popular(draw, 150, 0.6)

    def some():
        at = places[pick()]
        return [("R", at + draw.randrange(600), draw.choice([1, 1, 2, 4])) for _ in range(draw.randint(5, 60))]

    return passes(some)


def cold(draw):
    """What never comes again."""
    volume = Volume(draw)
    return passes(lambda: [("R", volume.spot(), draw.choice([1, 2, 4]))])


KINDS = {
    "web": web,
    "web-drifts": lambda draw: web(draw, drift=0.3),
    "web-any-order": lambda draw: web(draw, in_order=False),
    "mail": mail,
    "boots-together": lambda draw: boots(draw, True),
    "boots": lambda draw: boots(draw, False),
    "table": lambda draw: table(draw, 0.9, 0.1),
    "table-hot": lambda draw: table(draw, 1.1, 0.3),
    "ranges": ranges,
    "photos": photos,
    "streams": streams,
    "scan": scan,
    "parts": parts,
    "update": update,
    "sources": sources,
    "downloads": downloads,
    "queries": queries,
    "mailboxes": mailboxes,
    "torrents": torrents,
    "sets": sets,
    "cold": cold,
}


def write(kind, seed, burst, path):
    """As an SPC trace; says where its passes begin."""
    draw, now, begin = random.Random(f"{kind} {seed}"), 0.0, []
    with open(path, "w") as out:
        for requests in KINDS[kind](draw):
            begin.append(max(0.0, now - 0.5))
            for op, block, blocks in requests:
                out.write(f"0,{block * BLOCK // 512},{blocks * BLOCK},{op},{now:.6f}\n")
                together = draw.random() >= 1 / burst
                now += TOGETHER_S if together else draw.expovariate(1 / (GAP_S * burst))
            now += REST_S
    return ",".join(f"{at:.3f}" for at in begin)


def summary(shares):
    """Of the second policy's responses in the first's, by kind and setting a list of each seed's passes."""
    if not shares:
        return
    every = [share for seeds in shares.values() for runs in seeds for share in runs]
    print(f"all together x{math.exp(statistics.fmean(map(math.log, every))):.3f}; more than the first:")
    for (kind, setting), seeds in shares.items():
        for number, shares_of in enumerate(zip(*seeds), 1):
            more = 100 * (statistics.fmean(shares_of) - 1)
            error = 100 * statistics.stdev(shares_of) / math.sqrt(len(seeds)) if len(seeds) > 1 else 0.0
            if more > max(1, 2 * error):
                print(f"  {kind}, {setting}, pass {number}: {more:+.1f} +- {error:.1f} %")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="target/release/fs2-replay")
    p.add_argument("--policies", default="none,fs2,borg,alis-run,hot-files")
    p.add_argument("--kinds", default=",".join(KINDS))
    p.add_argument("--seeds", default="1:2", metavar="FROM:TO")
    p.add_argument("--burst", type=int, metavar="N", help="at their own times, so many at once in the mean")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    a = p.parse_args()
    unknown = set(a.kinds.split(",")) - set(KINDS)
    if unknown:
        sys.exit(f"no such kind: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory() as scratch:
        traces = []
        for kind in a.kinds.split(","):
            for seed in range(*map(int, a.seeds.split(":"))):
                trace = Path(scratch) / f"{kind}-{seed}.spc"
                traces.append((kind, seed, trace, write(kind, seed, a.burst or 1, trace)))
        settings = OPEN if a.burst else SETTINGS
        pace = [] if a.burst else ["--closed-loop"]
        shares = {}

        def replay(job):
            (kind, seed, trace, split), setting = job
            options = ["--used", "60%", *pace, "--split", split, "--policy", a.policies, *settings[setting], *a.more]
            ended = subprocess.run([a.program, "run", trace, "--json", *map(str, options)], capture_output=True, text=True)
            if ended.returncode != 0:
                sys.exit(f"{a.program} run {kind}, seed {seed}: {ended.stderr.strip()}")
            return kind, seed, setting, json.loads(ended.stdout)["policies"]

        with ThreadPoolExecutor(a.jobs) as jobs:
            for kind, seed, setting, policies in jobs.map(replay, [(trace, setting) for trace in traces for setting in settings]):
                print(f"{kind}, seed {seed}, {setting}")
                for policy in policies:
                    figures = [" ".join(f"{run[f]:6.2f}" for run in policy["runs"]) for f in ("response_ms", "p99_response_ms", "copy_percent")]
                    print(f"  {policy['name']:10} mean {figures[0]}  p99 {figures[1]}  copied, % {figures[2]}", flush=True)
                if len(policies) > 1:
                    runs = [[run["response_ms"] for run in policy["runs"]] for policy in policies[:2]]
                    shares.setdefault((kind, setting), []).append([b / a for a, b in zip(*runs)])
    summary(shares)


if __name__ == "__main__":
    main()
