#!/usr/bin/env bash
# Unmounts ./mnt, if it is mounted.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! grep -q " $(pwd -P)/mnt fuse.topicfs " /proc/mounts 2>/dev/null; then
    echo "nothing is mounted at ./mnt"
    exit 0
fi
if [ -x .venv/bin/topicfs ]; then
    .venv/bin/topicfs umount ./mnt
else
    fusermount3 -u ./mnt
fi
echo "unmounted ./mnt; the topics are in ./data"
