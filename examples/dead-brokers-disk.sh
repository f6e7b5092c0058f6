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
if ! findings=$(topicfs check "$log_dir"); then
    printf '%s\n' "$findings"
    [ $# -gt 0 ] || [ -d "$log_dir/__cluster_metadata-0" ] || set -- --without-settings
    cat >&2 <<END
A takeover ends each damaged partition before its first damaged batch, as a broker does. Save the records after it
first, from a copy of the partition that is marked as closed cleanly, so that reading does not stop at the damage:
    mkdir rest && touch rest/.kafka_cleanshutdown
END
    sed -En 's|.*/(([^/]+)-([0-9]+))/[^/]+: position .* reading can go on at ([0-9]+)$|\1 \2 \3 \4|p' <<<"$findings" \
        | while read -r partition topic number offset; do
            echo "    cp -r $log_dir/$partition rest/"
            echo "    topicfs cat --data rest $topic/$number/$offset-.json > $partition-$offset.json"
        done >&2
    echo "Then take over the rest, and append each saved file by topicfs append TOPIC/PARTITION/log.json FILE:" >&2
    echo "    topicfs takeover $* $log_dir $data" >&2
    exit 1
fi

# 3. Make a copy to work with. If this is interrupted, run the script again.
topicfs takeover "$@" "$log_dir" "$data"
topicfs check "$data"
