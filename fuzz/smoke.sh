#!/bin/bash
# Each fuzz target for some seconds (default 20), from the committed seeds; ends with the first failure.
# Needs cargo-fuzz and nightly. With FS2_SANITIZER=none it is built without AddressSanitizer, in a third of the
# time: coverage guides it all the same, and there is no unsafe code in what it reaches but libraries'.
#   fuzz/smoke.sh [SECONDS] [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
shift || true
targets=("$@")
[ $# -gt 0 ] || targets=(ext2_image table_bytes nbd_bytes fuse_requests control_frames metrics_request trace_bytes engine_events disksim_specs hand_over wml_script)
for target in "${targets[@]}"; do
    echo "fuzz: $target"
    mkdir -p "fuzz/corpus/$target"
    seeds=("fuzz/seeds/$target")
    [ "$target" != trace_bytes ] || seeds+=(crates/fs2-trace/tests/samples)
    [ "$target" != wml_script ] || seeds+=(fs2-tools/tests/wml)
    # A run of a second is a hang; memory beyond the targets' own bounds is looked at by fs2d/tests/foreign_bytes.rs.
    cargo +nightly fuzz run -s "${FS2_SANITIZER:-address}" "$target" "fuzz/corpus/$target" "${seeds[@]}" -- \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 2>&1 |
        grep -E 'executed_units|panicked|ERROR|SUMMARY|peak_rss|cov: .* DONE' || { echo "fuzz: $target failed"; exit 1; }
done
