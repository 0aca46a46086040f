#!/usr/bin/env python3
"""Where a policy is worse than `none`: reads what `fs2-replay sweep` wrote, and pairs cells that differ in the policy alone.

    fs2-replay sweep benches/worst.toml --out DIR --jobs 2
    benches/worst.py DIR [--policy fs2] [--rows 20] [--by trace,drive]
    benches/worst.py DIR --again 8 --sweep benches/worst.toml [--program target/release/fs2-replay] [--jobs 2]

Of each pair and run: the mean response of all requests and of reads, and the 99th percentile of the response, all with their waits
behind copies, in per cent of `none`'s. What such a figure is worth, `none` says beside itself: its cells that differ in `space` alone,
which it makes no use of, have the volume's table elsewhere and so another rotation at each access. A crowd of
clients differs by more: whoever comes a little later makes another order. So `--again N` replays each pair that is above a target (1 % of a
mean, 2 % of the 99th percentile) with N other seeds and shows the mean of the N differences and its standard error. A seed draws the mismatched
drive and the free blocks that no listing says; and it caps think time elsewhere, between 97 and 103 ms, so that requests find the platter at
another angle where nothing is drawn. Only Python's own library is needed.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

METRICS = {"mean": "response_ms", "reads": "response_reads_ms", "p99": "p99_response_ms"}
TARGETS = {"mean": 1, "reads": 1, "p99": 2}


def beside_itself(cells):
    """By how much two runs of `none` differ, in per cent, where only `space` does."""
    alike = defaultdict(list)
    for key, policies in cells.items():
        if "none" in policies:
            alike[tuple(kv for kv in key if kv[0] != "space")].append(policies["none"])
    pairs = [pair for first, *others in alike.values() for other in others for pair in zip(first, other)]
    return [{name: 100 * abs(b[m] / a[m] - 1) if a[m] else 0.0 for name, m in METRICS.items()} for a, b in pairs]


def more(none, ours):
    return {name: 100 * (ours[m] / none[m] - 1) if none[m] else 0.0 for name, m in METRICS.items()}


def replay(a, traces, options, policy, seed):
    """The runs of one cell with another seed, and another cap of think time."""
    trace = traces[options["trace"]]
    at = a.sweep.parent
    command = [a.program, "run", *(at / f for f in trace["files"]), "--json", "--policy", policy, "--seed", str(seed)]
    command += ["--think", f"5ms,{97000 + 1373 * seed % 6000}us"]
    for key, value in options.items():
        if key == "free-map" or key == "drive" and value.endswith(".toml"):
            value = at / value
        if value in (True, "true"):
            command.append(f"--{key}")
        elif key not in ("trace", "seed"):
            command += [f"--{key}", value]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {ended.stderr.strip()}")
    result = json.loads(ended.stdout)
    return result.get("policies", [result])[0]["runs"]


def again(a, above):
    """Each pair above a target, with other seeds."""
    traces = {t["name"]: t for t in tomllib.loads(a.sweep.read_text())["trace"]}
    jobs = [(options, policy, seed) for options in above for seed in range(2, a.again + 2) for policy in ("none", a.policy)]
    with ThreadPoolExecutor(a.jobs) as pool:
        results = {}
        for n, (job, runs) in enumerate(zip(jobs, pool.map(lambda j: replay(a, traces, *j), jobs)), 1):
            options, policy, seed = job
            results[tuple(sorted(options.items())), policy, seed] = runs
            if sys.stderr.isatty():
                print(f"\r{n} of {len(jobs)}", end="", file=sys.stderr)
    rows = []
    for options in above:
        key = tuple(sorted(options.items()))
        by_seed = [[more(*runs) for runs in zip(results[key, "none", s], results[key, a.policy, s])] for s in range(2, a.again + 2)]
        for run, seeds in enumerate(zip(*by_seed), 1):
            rows.append((options, run, {m: [x[m] for x in seeds] for m in METRICS}))
    print(f"\n{len(above)} pairs above a target again, {a.again} other seeds each, {len(rows)} runs: means of the differences, and their standard errors")
    for name in METRICS:
        means = [(statistics.mean(r[2][name]), statistics.stdev(r[2][name]) / a.again**0.5, r[1], r[0]) for r in rows]
        limit = TARGETS[name]
        over, surely = sum(m > limit for m, *_ in means), sum(e > 0 and m - 2 * e > limit for m, e, *_ in means)
        alike = sum(e == 0 and m > limit for m, e, *_ in means)
        print(f"{name:5} above {limit} % in {over} runs, by more than two standard errors in {surely}, with every seed the same in {alike}; the worst:")
        for mean, error, run, options in sorted(means, key=lambda m: -m[0])[: a.rows]:
            at = " ".join(f"{k}={options[k]}" for k in ("trace", "drive", "belief", "clients", "space", "idle-between") if k in options)
            print(f"  {mean:+6.1f} " + (f"± {error:3.1f} %" if error > 0 else "always") + f"  run {run}  {at}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", type=Path, help="the sweep's directory")
    p.add_argument("--policy", default="fs2", help="compared with none [default: fs2]")
    p.add_argument("--rows", type=int, default=20, help="worst cells shown [default: 20]")
    p.add_argument("--by", default="trace,drive", help="also the worst for each value of these [default: trace,drive]")
    p.add_argument("--again", type=int, default=0, metavar="N", help="replay what is above a target with N other seeds, at least 2")
    p.add_argument("--sweep", type=Path, help="the sweep's description, for --again: where traces are")
    p.add_argument("--program", type=Path, default=Path("target/release/fs2-replay"), help="for --again [default: target/release/fs2-replay]")
    p.add_argument("--jobs", type=int, default=2, help="replays at a time, for --again [default: 2]")
    a = p.parse_args()
    if a.again and (a.again < 2 or not a.sweep):
        p.error("--again needs at least 2 seeds, and --sweep")
    cells = defaultdict(dict)
    for file in sorted(a.dir.glob("shard-*.jsonl")):
        for line in file.read_text().splitlines():
            cell = json.loads(line)
            options = dict(cell["cell"]["options"], trace=cell["cell"]["trace"])
            policy = options.pop("policy")
            cells[tuple(sorted(options.items()))][policy] = cell["result"]["policies"][0]["runs"]
    varied = {k for key in cells for k, _ in key if len({dict(c).get(k) for c in cells}) > 1}
    varied -= {"free-map", "event", "used"}
    rows, unpaired, suspects = [], 0, []
    for key, policies in cells.items():
        if a.policy not in policies or "none" not in policies:
            unpaired += 1
            continue
        options = {k: v for k, v in key if k in varied}
        for none, ours in zip(policies["none"], policies[a.policy]):
            rows.append((more(none, ours), ours["run"], options, none, ours))
        if any(row[0][m] > TARGETS[m] for row in rows[-len(policies["none"]) :] for m in METRICS):
            suspects.append(dict(key))
    # A run without reads has no mean of them.
    rows = [r for r in rows if all(r[3][m] is not None and r[4][m] is not None for m in METRICS.values())]
    print(f"{len(rows)} runs of {len(cells) - unpaired} pairs" + (f", {unpaired} cells without their pair" if unpaired else ""))
    if not rows:
        return
    for name in METRICS:
        sorted_by = sorted(r[0][name] for r in rows)
        above = [sum(x > limit for x in sorted_by) for limit in (0.1, 1, 2, 5)]
        print(f"{name:7} median {sorted_by[len(rows) // 2]:+7.1f} %, worst {sorted_by[-1]:+6.1f} %; runs above +0.1, 1, 2, 5 %: {above}")
    for name in METRICS if (noise := beside_itself(cells)) else ():
        sorted_by = sorted(n[name] for n in noise)
        above = [sum(x > limit for x in sorted_by) for limit in (1, 2, 5)]
        print(f"none beside itself, {len(noise)} pairs of runs: {name:5} up to {sorted_by[-1]:4.1f} %; above 1, 2, 5 %: {above}")
    for name in ("mean", "reads", "p99"):
        print(f"\nworst by {name}:")
        for excess, run, options, none, ours in sorted(rows, key=lambda r: -r[0][name])[: a.rows]:
            at = " ".join(f"{k}={v}" for k, v in sorted(options.items()))
            metric = METRICS[name]
            print(f"  {excess[name]:+6.1f} %  {none[metric]:8.3f} -> {ours[metric]:8.3f} ms  run {run}  copies {ours['copy_percent']:.0f} %  {at}")
    for what in filter(None, a.by.split(",")):
        print(f"\nworst for each {what}, and its runs above {TARGETS['mean']}, {TARGETS['reads']} and {TARGETS['p99']} %: mean, reads, p99")
        groups = defaultdict(list)
        for row in rows:
            groups[row[2].get(what, "-")].append(row[0])
        for value, members in sorted(groups.items()):
            above = {name: sum(m[name] > limit for m in members) for name, limit in TARGETS.items()}
            print(f"  {value:24}" + "".join(f" {max(m[name] for m in members):+7.1f} % {above[name]:5}" for name in TARGETS) + f"  of {len(members)}")
    if a.again and suspects:
        again(a, suspects)


main()
