#!/bin/bash
# Each fuzz target for some seconds (default 20); ends with the first failure. Needs cargo-fuzz and nightly.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in ext2_image table_bytes nbd_bytes control_frames trace_bytes engine_events; do
    echo "fuzz: $target"
    cargo +nightly fuzz run "$target" -- -max_total_time="${1:-20}" -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 2>&1 |
        grep -E 'executed_units|panicked|ERROR|SUMMARY|peak_rss' || { echo "fuzz: $target failed"; exit 1; }
done
