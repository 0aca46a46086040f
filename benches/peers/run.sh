#!/bin/bash
# The daemon beside other servers of block devices, in turns, on one image in memory: throughput and the
# server's processor time a request, medians of several rounds. See `run.sh --help`.
exec python3 "$(dirname "$0")/peers.py" "$@"
