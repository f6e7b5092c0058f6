#!/usr/bin/env bash
# Count the words of a million lines with Spark, from one topic into another, and read the counts with cat.
#
#   examples/spark-word-count.sh [LINES]
#
# The text is the source of Python's own library. Half of its lines are appended to a topic before Spark starts, which
# counts them in one run. The other half is appended while Spark follows. In the end the counts are compared with those of
# sort and uniq. word_count.py has the Spark query. Needs: pip install 'topicfs[spark]', Java. Leaves nothing behind.
set -euo pipefail
export LC_ALL=C
lines=${1:-1000000}
here=$(cd "$(dirname "$0")" && pwd)
PATH=$here/../.venv/bin:$PATH
work=$(mktemp -d)
mount=$work/mnt spark=
job=(python "$here/word_count.py" "$work/data" "$work/checkpoint")

finish() {
    [ -z "$spark" ] || { kill "$spark" && wait "$spark"; } 2>/dev/null || true
    ! mountpoint -q "$mount" || topicfs umount "$mount"
    rm -rf "$work"
}
trap finish EXIT

say() { printf '%4s s  %s\n' "$SECONDS" "$*"; }

fail() {
    grep -v '^[[:space:]]*at ' "$work/spark.log" >&2
    exit 1
}

# Each record of the topic `words` is a word, a TAB and its count in ten seconds. Print one line per word with its sum.
counts() { cat "$mount"/words/[0-9]*/log.kv | awk -F'\t' '{ n[$1] += $2 } END { for (word in n) print n[word], word }'; }

sum() { awk '{ n += $1 } END { print n + 0 }'; }

mapfile -t library < <(python -c 'import sysconfig as of; print(of.get_path("stdlib"), of.get_path("purelib"), sep="\n")')
# Once head has read enough, a signal ends cat. This is not a failure, and nothing is printed.
{ find "${library[@]}" -name '*.py' -print0 | sort -z | xargs -0 cat | head -n "$lines" >"$work/text"; } 2>/dev/null || true
tr -cs A-Za-z '\n' <"$work/text" | grep . | sort | uniq -c | awk '{ print $1, $2 }' | sort >"$work/expected"
words=$(sum <"$work/expected")
say "a text of $(wc -l <"$work/text") lines and $words words"

mkdir "$mount"
topicfs mount "$work/data" "$mount"
mkdir "$mount/text" "$mount/text/3" "$mount/words" "$mount/words/1" # of four partitions, and of two
half=$((lines / 2))
head -n "$half" "$work/text" >>"$mount/text/log"
say "half of it is appended"

"${job[@]}" 2>"$work/spark.log" || fail
say "Spark has read that; what was appended in the last ten seconds is not counted out yet"

"${job[@]}" --follow >"$work/batches" 2>"$work/spark.log" &
spark=$!
tail -n "+$((half + 1))" "$work/text" | split -l "$((half / 5 + 1))" --filter="cat >>'$mount/text/log'; sleep 1"
say "the other half is appended, while Spark follows"

# A window of ten seconds ends when a newer record arrives: here an empty record with a time in a minute.
printf '{"ts":%s000,"payload":""}\n' "$(($(date +%s) + 60))" >>"$mount/text/log.json"
while [ "$(counts | sum)" -lt "$words" ]; do
    kill -0 "$spark" || fail
    sleep 1
done
kill "$spark"
wait "$spark" || fail
spark=
cat "$work/batches"
say "every word is counted out: $(cat "$mount"/words/[0-9]*/log | wc -l) records"

counts | sort | cmp - "$work/expected" && say "sort and uniq count the same:"
counts | sort -rn | sed -n 1,5p
tail -n 1 "$mount/words/0/log.json"
