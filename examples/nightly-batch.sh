#!/usr/bin/env bash
# Run a command on the new records of a topic, a thousand at a time, for example by cron at night.
#
#   examples/nightly-batch.sh TOPIC GROUP COMMAND…
#   0 3 * * *  MOUNT=/srv/topics examples/nightly-batch.sh orders billing ./import
#
# The mount is at ./mnt, or at $MOUNT. The group's position moves only if the command ends with status 0. If the
# command fails or is killed, the next run begins with the same records.
set -euo pipefail
topic=$1 group=${MOUNT:-mnt}/@groups/$2
shift 2

mkdir -p "$group"
echo commit=manual >"$group/config"
lag=1
while [ "$lag" -gt 0 ]; do
    exec 3<>"$group/$topic/next-1000"
    "$@" <&3
    echo commit >&3
    exec 3>&-
    lag=$(sed -n 's/^lag //p' "$group/status")
done
