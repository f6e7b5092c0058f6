#!/usr/bin/env bash
# A first session, as a newcomer would type it: shows each command with its output. Mounts ./data at ./mnt and leaves
# it mounted. The script may run again: it then appends to the same topics.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" LC_ALL=C.UTF-8
bold='' quiet='' plain=''
if [ -t 1 ]; then bold=$'\e[1m' quiet=$'\e[2m' plain=$'\e[0m'; fi

say() { printf '\n%s# %s%s\n' "$quiet" "$1" "$plain"; }

shown=$(mktemp)
trap 'rm -f "$shown"' EXIT

# Show a command and its output.
show() {
    local status=0
    printf '%s$ %s%s\n' "$bold" "$1" "$plain"
    bash -c "$1" >"$shown" 2>&1 || status=$?
    cat "$shown"
    [ -z "$(tail -c 1 "$shown")" ] || echo
    [ "$status" -eq 0 ] || printf '%s(exit status %s)%s\n' "$quiet" "$status" "$plain"
}

# A mount whose daemon was killed is in /proc/mounts too, but has no @status.
is_mounted() { grep -qs " $(pwd -P)/mnt fuse.topicfs " /proc/mounts && [ -e mnt/@status ]; }

# A text on this machine with at least a thousand lines and a newline at its end: dpkg's log, or else the largest text.
find_text() {
    local file best=README.md
    for file in /var/log/dpkg.log $(find /var/log /usr/share/dict /usr/share/common-licenses /usr/share/perl \
        -type f -readable -size +40k -size -65536k -printf '%s %p\n' 2>/dev/null | sort -rn | head -n 30 | cut -d' ' -f2-); do
        if [ -r "$file" ] && grep -Iq . "$file" && [ -z "$(tail -c 1 "$file")" ] && [ "$(wc -l <"$file")" -gt 1000 ]; then
            best=$file
            break
        fi
    done
    printf '%s\n' "$best"
}

middle_line() {
    local lines
    lines=$(wc -l <"$1")
    echo $((lines > 1000 ? 1000 : lines / 2))
}

# A topic whose log is the beginning of the text, so that another run appends only the new lines of the text.
find_topic() {
    local text=$1 base=$2 name number=1
    name=$base
    while [ -e "mnt/$name" ] && ! cmp -s -n "$(stat -c %s "mnt/$name/0/log")" "$text" "mnt/$name/0/log"; do
        number=$((number + 1))
        name=$base-$number
    done
    printf '%s\n' "$name"
}

play_with_mount() {
    local text topic size line
    text=$(find_text)
    line=$(middle_line "$text")
    topic=$(find_topic "$text" "$(basename "$text" | tr -c 'a-zA-Z0-9._\n-' -)")

    say 'A topic is a directory, a record is a line.'
    [ -d mnt/orders ] || show 'mkdir mnt/orders'
    show 'echo "one apple" >> mnt/orders/0/log'
    show 'printf "anna\ttwo pears\nbert\tthree figs\n" >> mnt/orders/0/log.kv'
    show 'cat mnt/orders/0/log'
    show 'ls mnt/orders/0'

    say 'Every record has its own file, by offset and by time; .json shows all there is to know of it.'
    show 'cat mnt/orders/0/0.json'
    ! command -v jq >/dev/null || show 'tail -n 1 mnt/orders/0/log.json | jq --raw-output .key'
    # shellcheck disable=SC2016 # the variables belong to the command shown
    show 'now=$(date -u +%FT%T.%3NZ); echo "four plums" >> mnt/orders/0/log; cat "mnt/orders/0/@$now.json"'
    ! command -v getfattr >/dev/null || show 'getfattr --dump mnt/orders/0/1'

    say "A real file, in and out unchanged: $text"
    [ -d "mnt/$topic" ] || show "mkdir mnt/$topic"
    size=$(stat -c %s "mnt/$topic/0/log")
    if [ "$size" -eq 0 ]; then
        show "cat $text >> mnt/$topic/0/log"
    elif [ "$size" -lt "$(stat -c %s "$text")" ]; then
        show "tail -c +$((size + 1)) $text >> mnt/$topic/0/log"
    fi
    show "cmp $text mnt/$topic/0/log && echo the same"
    show "wc -l mnt/$topic/0/log"
    show "grep -c install mnt/$topic/0/log"
    show "head -n 2 mnt/$topic/0/log"
    show "tail -n 2 mnt/$topic/0/log"
    show "cat mnt/$topic/0/$line     # line $((line + 1))"
    show "dd if=mnt/$topic/0/log bs=64 skip=100 count=1 status=none"

    say 'How a record is found. (The command reads the data directory beside the daemon, as of its last
# checkpoint: every five seconds.)'
    for _ in {1..20}; do
        topicfs explain "$topic/0/$line" >"$shown" 2>&1 && break
        sleep 0.5
    done
    show "topicfs explain $topic/0/$line 2>/dev/null"

    printf '\nThe mount is up. Go on: tail -f mnt/orders/0/log   (and in another shell: echo five >> mnt/orders/0/log)\n'
    # shellcheck disable=SC2016 # The user's shell expands the variables.
    printf 'The command is .venv/bin/topicfs. For this shell: export PATH="$PWD/.venv/bin:$PATH"\n'
    printf 'Stop: make stop\n'
}

play_without_mount() {
    local text line
    text=$(find_text)
    line=$(middle_line "$text")
    say 'A topic, and records in it.'
    [ -d data/orders-0 ] || show 'topicfs topics create orders'
    show 'echo "one apple" | topicfs append orders/0'
    show 'printf "anna\ttwo pears\nbert\tthree figs\n" | topicfs append orders/0/log.kv'
    show 'topicfs cat orders/0'
    show 'topicfs cat orders/0/0.json'
    show 'topicfs cat orders/0/-1.kv'
    say "A real file, in and out unchanged: $text"
    if [ ! -d data/text-0 ]; then
        show 'topicfs topics create text'
        show "topicfs append text/0 $text"
    fi
    show "topicfs cat text/0 | cmp - $text && echo the same"
    show 'topicfs cat text/0 | wc -l'
    show "topicfs cat text/0/$line     # line $((line + 1))"
    show "topicfs explain text/0/$line"
    show 'topicfs topics list'
    printf '\nGo on: echo five | topicfs append orders/0; topicfs cat --follow orders/0\n'
    # shellcheck disable=SC2016 # The user's shell expands the variables.
    printf 'The command is .venv/bin/topicfs. For this shell: export PATH="$PWD/.venv/bin:$PATH"\n'
    printf 'Nothing is mounted or running, so there is nothing to stop.\n'
}

device=${TOPICFS_FUSE_DEVICE:-/dev/fuse}
if [ ! -c "$device" ]; then
    echo "topicfs: $device is missing here, so nothing can be mounted: the session uses topicfs append and topicfs cat"
    play_without_mount
elif is_mounted || { mkdir -p mnt 2>/dev/null; topicfs mount ./data ./mnt; }; then
    play_with_mount
else
    echo 'topicfs: mounting is not allowed here: the session uses topicfs append and topicfs cat'
    play_without_mount
fi
