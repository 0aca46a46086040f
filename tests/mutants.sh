#!/bin/bash
# Mutation testing: is each line of what keeps data safe held by a test? Needs cargo-mutants
# (`cargo install cargo-mutants --locked`) and hours; what is accepted, and why, is in .cargo/mutants.toml and docs/safety.md.
#   tests/mutants.sh PART [OPTION...]     PART: ext2, table, block, engine, or all
# Options go to cargo-mutants: `--iterate` leaves out what an earlier run caught, `--shard 0/8` runs an eighth,
# `--in-diff <(git diff main)` only what a change touches, `--re NAME` what its names match, `--list` runs nothing.
# Reports: target/mutants/PART/mutants.out.
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:-all}
shift || true
options=("$@")
# Line tables are of no use to a test that is only to fail.
export CARGO_PROFILE_DEV_DEBUG=0
run() { # part; what is mutated in files, which tests of which packages are to notice in packages, tests
    local part=$1 mutate=() try=() notice=()
    for f in "${files[@]}"; do mutate+=(-f "$f"); done
    for p in "${packages[@]}"; do try+=(-p "$p") notice+=(--test-package "$p"); done
    mkdir -p "target/mutants/$part"
    # Without a change, all must pass. cargo-mutants would try that in the package it changes alone, which has
    # not all of these tests.
    [[ " ${options[*]} " = *" --list "* ]] || cargo test -q "${try[@]}" "${tests[@]}" > "target/mutants/$part/unchanged.log" 2>&1 ||
        { echo "mutants: $part fails unchanged, see target/mutants/$part/unchanged.log"; exit 1; }
    # 3: some ran into the time limit, which is as good as caught; the report says which.
    nice cargo mutants --baseline skip --timeout "$seconds" --output "target/mutants/$part" "${mutate[@]}" "${notice[@]}" \
        "${options[@]}" -- "${tests[@]}" || { local rc=$?; [ $rc = 3 ] || failed+=" $part"; }
}
failed=
engine=crates/fs2-engine/src
for p in ext2 table block engine; do
    [ "$part" = all ] || [ "$part" = "$p" ] || continue
    # In seconds, without a change, on a machine that does nothing else: 3, 6, 5, 90.
    seconds=60
    case $p in
    ext2)
        files=(crates/fs2-ext2/src/liveness.rs)
        packages=(fs2-ext2)
        tests=(--lib --test it -- tests:: liveness::)
        ;;
    table)
        files=('crates/fs2-table/src/recovery*' 'crates/fs2-table/src/recovery/*' crates/fs2-table/src/{page,header}.rs)
        packages=(fs2-table)
        tests=(--tests)
        ;;
    block)
        files=(crates/fs2-block/src/units.rs)
        packages=(fs2-block fs2-ext2 fs2-table)
        tests=(--lib --test it -- tests:: liveness:: model::)
        ;;
    engine)
        seconds=600
        files=("$engine"/volume/{clients,mod,completion,background,home,attach,detach,patience}.rs "$engine"/{log,seq_map}.rs)
        packages=(fs2-engine fs2-sim)
        tests=(--lib --test it -- tests:: sessions:: edges:: ends:: tables:: rules:: counterexamples:: found:: found_by_worlds:: model:: plants:: replay::)
        ;;
    esac
    run "$p"
done
[ -z "$failed" ] || { echo "mutants: not all caught in:$failed"; exit 1; }
