#!/bin/bash
# fsbench's postmark beside PostMark itself (Debian's package postmark), in turns in one directory: the operations of
# both, which have to be the same, the time they take and the processor time. See `fsbench.sh --help`.
exec python3 "$(dirname "$0")/fsbench.py" "$@"
