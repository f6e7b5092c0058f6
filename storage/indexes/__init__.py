"""The sparse index files of a segment: from an offset or a timestamp to a position in its log, by binary search.

Each index is a row of slots of one size, mapped into memory. `slots` knows the file (preallocation, trimming, how
many slots are used), `search` the way of a lookup, and each index its slot's fields and rules; `entries` compares
them with the batches that they lead to. What they index: kafka-storage.md#segments.
"""
