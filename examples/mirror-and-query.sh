#!/usr/bin/env bash
# Copy a topic of a Kafka cluster to this machine, and ask the copy instead of the cluster.
#
#   examples/mirror-and-query.sh HOST:PORT TOPIC [COPY]
#   examples/mirror-and-query.sh localhost:9092 orders
#
# COPY is a data directory (./copy). The first run fetches everything, each further one what is new. For a copy that
# follows the cluster all the time, run `topicfs mirror` without --once as a service.
set -euo pipefail
cluster=$1 topic=$2 copy=${3:-copy}

topicfs mirror --once --topics "$topic" "kafka://$cluster" "$copy"

# Questions cost the cluster nothing now. By the shell: how often does each key come?
topicfs cat --data "$copy" "$topic/log" --format '%k\n' | sort | uniq -c | sort -k1,1nr -k2

# The same of the last day in SQL, with DuckDB:
#   python examples/query_with_duckdb.py copy orders
