#!/usr/bin/env bash
# Run a command for each job of a topic. You may run this script several times at once: all runs share the jobs.
#
#   examples/queue-worker.sh TOPIC QUEUE COMMAND…
#   examples/queue-worker.sh orders mail ./send-mail        # the job is on standard input
#   echo 'anna@example.org' >> mnt/orders/0/log             # a new job
#
# The mount is at ./mnt, or at $MOUNT. SIGTERM or Ctrl-C ends it. A job belongs to this program until it is accepted or
# released, at most for share.record.lock.duration.ms (30 seconds). If the program is killed, another worker gets
# the job. After five failed deliveries the job is in the queue's folder `rejected/`.
set -euo pipefail
topic=$1 queue=${MOUNT:-mnt}/@queues/$2
shift 2

mkdir -p "$queue"
exec 3<>"$queue/$topic/take"
while read -r job <&3; do # waits for the next job
    if "$@" <<<"$job"; then
        echo accept >&3
    else
        echo release >&3 # a worker gets the job again
    fi
done
