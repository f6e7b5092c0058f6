"""From a partition's directory, left in order or not, to a log that can be served.

`temporary_files` sorts out what an interrupted deletion or compaction left behind, `recover` goes through a segment
batch by batch and rebuilds its indexes, so that a crash in between is noticed; `repair` sets right what a flipped bit
did to a header, `load` does all steps in Kafka's order (kafka-storage.md#loading). On a read-only disk the same steps
happen in memory: what is not sound is not shown. `following` goes on from there beside the one who writes.
"""
