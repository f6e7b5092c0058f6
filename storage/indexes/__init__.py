"""The sparse index files of a segment: from an offset or a timestamp to a position in its log (kafka-storage.md#segments).

Each is a row of slots of one size (`slots`), searched by halving (`search`); `entries` checks them against the
batches.
"""
