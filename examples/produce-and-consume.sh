#!/usr/bin/env bash
# Produce and consume using only files: an order is a line, and its key chooses the partition.
#
#   examples/produce-and-consume.sh [MOUNTPOINT]
set -euo pipefail
mount=${1:-mnt}

mkdir -p "$mount/shop/1" # a topic with partitions 0 and 1

# In the topic's own log, a key chooses the partition as in Kafka's producer, so equal keys are in the same partition.
printf '%s\t%s\n' anna '2 pears' carl '1 fig' anna '3 plums' >>"$mount/shop/log.kv"

# Consume: store the next offset, and continue from it. Both are plain text.
for partition in 0 1; do
    next=0
    while IFS=$'\t' read -r key value; do
        printf 'partition %s, offset %s: %s ordered %s\n' "$partition" "$next" "$key" "$value"
        next=$((next + 1))
    done <"$mount/shop/$partition/$next-.kv"
done
