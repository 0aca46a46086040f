#!/bin/bash
# Mutation testing: is each line of what keeps data safe held by a test? Needs cargo-mutants
# (`cargo install cargo-mutants --locked`) and hours; what is accepted, and why, is in .cargo/mutants.toml and docs/safety.md.
#   tests/mutants.sh PART [OPTION...]     PART: ext2, table, block, engine, or all
# Options go to cargo-mutants: `--iterate` leaves out what an earlier run caught, `--shard 0/8` runs an eighth,
# `--in-diff <(git diff main)` only what a change touches, `--list` runs nothing. Reports: target/mutants/PART/mutants.out.
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:-all}
shift || true
# Line tables are of no use to a test that is only to fail.
export CARGO_PROFILE_DEV_DEBUG=0
run() { # part, options...; then -- and what is tested
    local part=$1
    shift
    mkdir -p "target/mutants/$part"
    # 2: some survived; 3: some ran into the time limit, which is as good as caught. The report says which.
    nice cargo mutants --output "target/mutants/$part" "$@" || { local rc=$?; [ $rc = 3 ] || failed+=" $part"; }
}
failed=
volume=crates/fs2-engine/src/volume
for p in ext2 table block engine; do
    [ "$part" = all ] || [ "$part" = "$p" ] || continue
    case $p in
    ext2) run ext2 -f crates/fs2-ext2/src/liveness.rs --test-package fs2-ext2 "$@" -- --lib --test liveness ;;
    table) run table -f 'crates/fs2-table/src/recovery*' -f 'crates/fs2-table/src/recovery/*' -f crates/fs2-table/src/page.rs \
        -f crates/fs2-table/src/header.rs --test-package fs2-table "$@" -- --tests ;;
    block) run block -f crates/fs2-block/src/units.rs --test-package fs2-block --test-package fs2-ext2 --test-package fs2-table \
        "$@" -- --lib --test liveness --test model ;;
    engine) run engine -f "$volume/clients.rs" -f "$volume/mod.rs" -f "$volume/completion.rs" -f "$volume/background.rs" \
        -f "$volume/home.rs" -f "$volume/attach.rs" -f "$volume/detach.rs" -f "$volume/patience.rs" \
        -f crates/fs2-engine/src/log.rs -f crates/fs2-engine/src/seq_map.rs --test-package fs2-engine --test-package fs2-sim \
        "$@" -- --lib --test sessions --test edges --test ends --test tables --test rules --test counterexamples \
        --test found --test found_by_worlds --test model --test plants --test replay ;;
    esac
done
[ -z "$failed" ] || { echo "mutants: not all caught in:$failed"; exit 1; }
