"""The bounded disk cache of fetched records. Reading a record again needs no request to a broker.

    DIR/                                  the cache of one process (`.lock`)
    ├── topicfs.cache                     marks the directory as a cache
    └── <cluster id>/<topic id>-<partition>/
        ├── <20 digits>.log               adjacent batches from an offset on, as the brokers have them
        └── <20 digits>.aborted           the aborted transactions among them

A partition has any number of cache files, each for its own range of offsets (`cluster.cache.cache_file`). The cache
directory can be deleted at any time. Damaged or outdated files are removed, and their records are fetched again.
"""
