#!/bin/bash
# What takes too long for every change: the foreign suites at full length. Needs what the privileged tests
# need (docs/testing.md). Half an hour to an hour.
#   tests/long.sh [SEEDS=7,8,9,10,11]
set -euo pipefail
cd "$(dirname "$0")/.."
export FS2_FORBID_SKIP=1 FS2_FSX_SEEDS=${1:-7,8,9,10,11} FS2_FSX_OPS=20000 FS2_STRESS_TIMES=4
cargo build -p fs2d -p fs2-tools --bins
cargo test -p fs2-tests --test privileged_suites -- --test-threads 1 --nocapture
# Killed at other moments each time.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    cargo test -q -p fs2-tests --test privileged_kill9
done
