#!/usr/bin/env python3
"""Where a policy is worse than `none`: reads what `fs2-replay sweep` wrote, and pairs cells that differ in the policy alone.

    fs2-replay sweep benches/worst.toml --out DIR --jobs 2
    benches/worst.py DIR [--policy fs2] [--rows 20] [--by trace,drive]

Of each pair and run: the mean response of all requests and of reads, and the 99th percentile of the response, all with their waits
behind copies, in per cent of `none`'s. Only Python's own library is needed.
"""
import argparse
import json
from collections import defaultdict
from pathlib import Path

METRICS = {"mean": "response_ms", "reads": "response_reads_ms", "p99": "p99_response_ms"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", type=Path, help="the sweep's directory")
    p.add_argument("--policy", default="fs2", help="compared with none [default: fs2]")
    p.add_argument("--rows", type=int, default=20, help="worst cells shown [default: 20]")
    p.add_argument("--by", default="trace,drive", help="also the worst for each value of these [default: trace,drive]")
    a = p.parse_args()
    cells = defaultdict(dict)
    for file in sorted(a.dir.glob("shard-*.jsonl")):
        for line in file.read_text().splitlines():
            cell = json.loads(line)
            options = dict(cell["cell"]["options"], trace=cell["cell"]["trace"])
            policy = options.pop("policy")
            cells[tuple(sorted(options.items()))][policy] = cell["result"]["policies"][0]["runs"]
    varied = {k for key in cells for k, _ in key if len({dict(c).get(k) for c in cells}) > 1}
    varied -= {"free-map", "event", "used"}
    rows, unpaired = [], 0
    for key, policies in cells.items():
        if a.policy not in policies or "none" not in policies:
            unpaired += 1
            continue
        options = {k: v for k, v in key if k in varied}
        for none, ours in zip(policies["none"], policies[a.policy]):
            more = {name: 100 * (ours[m] / none[m] - 1) if none[m] else 0.0 for name, m in METRICS.items()}
            rows.append((more, ours["run"], options, none, ours))
    print(f"{len(rows)} runs of {len(cells) - unpaired} pairs" + (f", {unpaired} cells without their pair" if unpaired else ""))
    if not rows:
        return
    for name in METRICS:
        sorted_by = sorted(r[0][name] for r in rows)
        above = [sum(x > limit for x in sorted_by) for limit in (0.1, 1, 2, 5)]
        print(f"{name:7} median {sorted_by[len(rows) // 2]:+7.1f} %, worst {sorted_by[-1]:+6.1f} %; runs above +0.1, 1, 2, 5 %: {above}")
    for name in ("mean", "reads", "p99"):
        print(f"\nworst by {name}:")
        for more, run, options, none, ours in sorted(rows, key=lambda r: -r[0][name])[: a.rows]:
            at = " ".join(f"{k}={v}" for k, v in sorted(options.items()))
            metric = METRICS[name]
            print(f"  {more[name]:+6.1f} %  {none[metric]:8.3f} -> {ours[metric]:8.3f} ms  run {run}  copies {ours['copy_percent']:.0f} %  {at}")
    for what in filter(None, a.by.split(",")):
        print(f"\nworst for each {what}: mean, reads, p99")
        groups = defaultdict(list)
        for row in rows:
            groups[row[2].get(what, "-")].append(row[0])
        for value, members in sorted(groups.items()):
            print(f"  {value:24}" + "".join(f" {max(m[name] for m in members):+7.1f} %" for name in ("mean", "reads", "p99")))


main()
