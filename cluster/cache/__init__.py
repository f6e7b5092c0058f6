"""The bounded disk cache of fetched records: a second read of a record asks no broker.

    DIR/                                  the cache of one process (`.lock`)
    ├── topicfs.cache                     marks the directory as a cache
    └── <cluster id>/<topic id>-<partition>/
        ├── <20 digits>.log               adjacent batches from an offset on, as the brokers have them
        └── <20 digits>.aborted           the aborted transactions among them

A partition has any number of such files, each for its own range of offsets (`cluster.cache.cache_file`). The cache can be
deleted at any time: damaged or outdated files are removed and their records fetched again.
"""
