#!/usr/bin/env bash
# Copy a topic of a Kafka cluster to this machine, and query the copy instead of the cluster.
#
#   examples/mirror-and-query.sh HOST:PORT TOPIC [COPY]
#   examples/mirror-and-query.sh localhost:9092 orders
#
# COPY is a data directory (./copy). The first run fetches all records, later runs the new ones. For a copy that
# always follows the cluster, run `topicfs mirror` without --once as a service.
set -euo pipefail
cluster=$1 topic=$2 copy=${3:-copy}

topicfs mirror --once --topics "$topic" "kafka://$cluster" "$copy"

# Queries now cost the cluster nothing. In the shell: how often does each key occur?
topicfs cat --data "$copy" "$topic/log" --format '%k\n' | sort | uniq -c | sort -k1,1nr -k2

# The same query for the last day, in SQL with DuckDB:
#   python examples/query_with_duckdb.py copy orders
