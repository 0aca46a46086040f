#!/usr/bin/env python3
"""Makes docs/constants.md: the policy's and the engine's constants as the source has them, each with where it comes from.

    benches/constants.py            writes docs/constants.md
    benches/constants.py --check    fails where that is not what it would write, or where a constant says nothing of its own

A constant says it in the comment before it; several under one comment share it. Only Python's own library is needed.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "crates/fs2-engine/src"
PAGE = ROOT / "docs/constants.md"
WHEN = ["arrival.rs", "background.rs", "beside.rs", "clients.rs", "crowd.rs", "disturbance.rs", "ghost.rs", "ghost/excursions.rs", "ghost/gate.rs", "ghost/trial.rs", "patience.rs", "pauses.rs", "room.rs", "rush.rs", "tail.rs", "write_cache.rs"]
PARTS = [
    ("What is copied, where to, which copy is read", sorted(f for f in (SOURCE / "policy/fs2").glob("*.rs") if f.name != "tests.rs")),
    ("When the engine works, and whether copies are read", [SOURCE / "volume" / name for name in WHEN]),
    ("Both, and the log", [SOURCE / name for name in ("config.rs", "head.rs", "head/nearby.rs", "log.rs", "worth.rs")]),
]
CONSTANT = re.compile(r"(?:pub(?:\([a-z]+\))? )?const ([A-Z][A-Z0-9_]*): [^=]+= (.*);$")
HEAD = """# Constants of the engine and of its policy

Made by `benches/constants.py` from the source, whose comments say where each comes from: measured (on which traces [policy.md](policy.md) says), from a
paper, or a guess. Times without a unit are in ms where the comment says so, else of their type.
"""


def constants(file):
    """Name, value and comment of each at the file's top level."""
    comment, shared = [], ""
    text = file.read_text().split("\n#[cfg(test)]")[0]
    # A value on several lines is one.
    text = re.sub(r"(?m)^((?:pub(?:\([a-z]+\))? )?const [^;]*?=)\s*\n\s*", r"\1 ", text)
    for line in text.splitlines():
        if line.startswith("///"):
            comment.append(line[3:].strip())
        elif found := CONSTANT.match(line):
            shared = " ".join(comment) if comment else shared
            yield found[1], found[2], shared
            comment = []
        else:
            comment, shared = [], ""


def page():
    out, silent = [HEAD], []
    for title, files in PARTS:
        out += [f"## {title}", "", "| constant | value | where it comes from |", "|---|---|---|"]
        for file in files:
            name = file.relative_to(SOURCE)
            for constant, value, comment in constants(file):
                if not comment:
                    silent.append(f"{name}: {constant}")
                comment = re.sub(r"\[`?([^\]`]*)`?\](\([^)]*\))?", r"`\1`", comment).replace("|", "\\|")
                out.append(f"| `{constant}`, {name} | `{value}` | {comment} |")
        out.append("")
    return "\n".join(out).rstrip() + "\n", silent


def main():
    text, silent = page()
    for one in silent:
        print(f"{one}: no comment says where it comes from", file=sys.stderr)
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text() != text:
            print(f"{PAGE.relative_to(ROOT)} is not what benches/constants.py makes of the source: run it", file=sys.stderr)
            return 1
    else:
        PAGE.write_text(text)
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
