#!/usr/bin/env bash
# A service for the jobs of a topic: `topicfs work` runs this script once for each job, four at a time.
#
#   examples/queue-service.sh TOPIC            wait for jobs; after SIGTERM or Ctrl-C, end once running jobs have ended
#   examples/queue-service.sh TOPIC --drain    end when there is no job left
#   printf 'anna\t{"amount":2}\n' >> mnt/orders/log.kv
#
# The script's exit status decides about the job: 0 accepts it, 65 rejects it for good, and any other status returns it
# to be delivered again, at most five times in all. Compare queue-worker.sh, which needs no `topicfs` command.
set -euo pipefail

if [ -z "${TOPICFS_OFFSET-}" ]; then
    here=$(realpath "$0") topic=$1
    shift
    exec topicfs work charges "$topic" --jobs 4 "$@" -- "$here"
fi

# This part handles one job. Its value is on standard input, its key in $TOPICFS_KEY.
amount=$(jq --exit-status .amount) || exit 65 # not a valid job, so it would fail each time
echo "$TOPICFS_KEY pays $amount"
