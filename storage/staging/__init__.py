"""Staged writes: many processes prepare one write, and the owner of the data directory commits it once, as a whole.

A write consists of plain files in the data directory, which a broker ignores. Tasks put batches into *staged* files
(`staged_file`). Their leader submits a *requested* manifest with the files' names (`manifest`, `area`). The
directory's owner renames it to *claimed*, checks every batch, notes log ends and producer in it, appends, and notes
the write as done (`committer`, `record`). After a crash the next owner finds in the logs what was appended, and
appends the rest. A bad write is *refused* as a whole. Batches with a *placement* keep their offsets (`placer`). A
`bell` wakes the owner, and then the job.
"""
