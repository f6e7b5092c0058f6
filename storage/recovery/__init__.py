"""Recovery: loads a partition's directory as a log that can be served, after a clean stop or a crash.

`temporary_files` sorts what an interrupted deletion or compaction left behind, `segment_recovery` goes through a segment
batch by batch and rebuilds its indexes, so that a crash in between is noticed; `repair` corrects what a flipped bit
did to a header, `options` has the options of a load, `loader` does all steps in Kafka's order
(kafka-storage.md#loading). On a read-only disk the same steps happen in memory: what is not sound is not shown.
`followed_log` reads what a living owner adds afterwards.
"""
