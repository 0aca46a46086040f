#!/bin/bash
# What takes too long for every change: the foreign suites and the kills at full length. Needs what the
# privileged tests need (docs/testing.md).
#   tests/long.sh [SECONDS_OF_SUITES=2400] [KILLS=1000]
set -euo pipefail
cd "$(dirname "$0")/.."
export FS2_FORBID_SKIP=1 FS2_SUITE_SECONDS=${1:-2400} FS2_KILLS=${2:-1000}
cargo build -p fs2d -p fs2-tools --bins
# Two seeds of half the time each: other files, other operations.
for seed in 1 1001; do
    FS2_SUITE_SEED=$seed FS2_SUITE_SECONDS=$((FS2_SUITE_SECONDS / 2)) \
        cargo test -p fs2-tests --test privileged suites:: -- --test-threads 2 --nocapture
done
FS2_KILL_SEED=2 cargo test -p fs2-tests --test unprivileged kill9:: -- --nocapture
# The page for administrators and the conventions of mount(8), by the package's own programs.
packaging/deb
package=$(mktemp -d)
dpkg-deb -x target/debian/fs2_*.deb "$package"
FS2_PACKAGE=$package cargo test -p fs2-tests --test privileged_namespaces
rm -r "$package"
# A file system killed at other moments each time.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    cargo test -q -p fs2-tests --test privileged kill9::
done
# More crash states of sessions on real volumes.
FS2_CRASH_STATES=400 cargo test -p fs2-tools --test it session_crash:: -- --nocapture
