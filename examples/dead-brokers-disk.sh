#!/usr/bin/env bash
# Save the topics on the disk of a Kafka broker that no longer starts.
#
#   examples/dead-brokers-disk.sh LOG_DIR DATA [OPTION of topicfs takeover]…
#   examples/dead-brokers-disk.sh /mnt/old-disk/kafka-logs ./data
#   examples/dead-brokers-disk.sh /mnt/old-disk/kafka-logs ./data --without-settings    # the metadata.log.dir is lost
#
# LOG_DIR is one of the broker's log.dirs; it is only read. DATA becomes a data directory with its topics: mount it, or
# give it to another broker with `topicfs handover`.
set -euo pipefail
log_dir=$1 data=$2
shift 2

# 1. Show the last record of each partition.
for partition in "$log_dir"/*-[0-9]*; do
    name=${partition##*/}
    case $name in __*) continue ;; esac # Kafka's own topics
    printf '%s\t' "$name"
    # An empty partition has no record, and step 2 finds a damaged record.
    { topicfs cat --data "$log_dir" "${name%-*}/${name##*-}/-1" || true; } | head -c 60 | tr '\n' ' '
    echo
done

# 2. Check every byte; each finding names its file, position and cause.
if ! topicfs check "$log_dir"; then
    cat >&2 <<END
A takeover ends these partitions before the first damaged batch, as a broker does. Save the records after it first:
    topicfs cat --data $log_dir TOPIC/PARTITION/OFFSET-.json > rest
Then take over the others: topicfs takeover $log_dir $data
END
    exit 1
fi

# 3. Make a copy to work with. If this is interrupted, run the script again.
topicfs takeover "$@" "$log_dir" "$data"
topicfs check "$data"
