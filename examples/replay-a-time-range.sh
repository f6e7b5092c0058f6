#!/usr/bin/env bash
# Replay the records that were appended between two times, in the order of their offsets.
#
#   examples/replay-a-time-range.sh TOPIC/PARTITION FROM TO [MOUNTPOINT]
#   examples/replay-a-time-range.sh orders/0 2026-11-21T03:00:00Z 2026-11-21T04:00:00Z
#
# FROM and TO are milliseconds or YYYY-MM-DD[THH:MM[:SS[.f]]][Z|±HH:MM]; TO is excluded. Finding both ends takes two
# index lookups, whatever the length of the log.
set -euo pipefail
cat "${4:-mnt}/$1/@$2-@$3"
