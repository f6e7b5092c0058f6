#!/usr/bin/env bash
# Replay what was appended between two moments, in the order of its offsets.
#
#   examples/replay-a-time-range.sh TOPIC/PARTITION FROM TO [MOUNTPOINT]
#   examples/replay-a-time-range.sh orders/0 2026-11-21T03:00:00Z 2026-11-21T04:00:00Z
#
# FROM and TO are milliseconds or YYYY-MM-DD[THH:MM[:SS[.f]]][Z|±HH:MM]; TO is excluded. Finding both ends takes two
# index lookups, however long the log is.
set -euo pipefail
cat "${4:-mnt}/$1/@$2-@$3"
