"""One segment of a log: its file, its sparse indexes, and the search through its batches.

Rules: kafka-storage.md#segments. `segment` writes and reads the files; `roll` decides when the next one is due, `sparse`
(compiled) which batch gets an index entry; `scan` walks over batches, and `trace` names the steps of a search. `chain` is the segments of a log in
order, with their aborted transactions.
"""
