"""Staged writes: many processes prepare one write, and the owner of the data directory commits it once, as a whole.

A write consists of plain files in the data directory, which a broker ignores. Tasks write batches into *staged* files
(`staged_file`). Their leader submits a *requested* manifest with the names of the files (`manifest`, `area`). The
directory's owner renames the manifest to *claimed* and checks every batch. It stores the log ends and the producer in
the manifest, appends the batches, and notes the write as done (`committer`, `record`). After a crash the next owner
finds in the logs which batches were appended, and appends the others. An invalid write is *refused* as a whole.
Batches with a *placement* keep their offsets (`placer`). A `bell` wakes the owner, and then the job.
"""
