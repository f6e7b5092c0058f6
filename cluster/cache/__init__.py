"""The cache of fetched records, on disk and bounded: the second read of a record asks no broker.

    DIR/                                  the cache of one process (`.lock`)
    ├── topicfs.cache                     says so
    └── <cluster id>/<topic id>-<partition>/
        ├── <20 digits>.log               adjacent batches from an offset on, as the brokers have them
        └── <20 digits>.aborted           the aborted transactions among them

A partition has any number of such files, each for a range of offsets of its own (`cluster.cache.run`). Nothing here is
needed: what is damaged, or no longer the cluster's, is removed and fetched again.
"""
