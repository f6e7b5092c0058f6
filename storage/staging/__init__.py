"""Staged writes: many processes prepare one write, and the owner of the data directory commits it as a whole, once.

They are carried by plain files in the data directory, which a broker ignores. Tasks put encoded batches into *staged* files
(`staged_file`); the process that leads them submits the write: a *requested* manifest names the files (`manifest`, `area`). The
directory's owner, a daemon or the writer itself, claims it by renaming the manifest to *claimed*, checks every batch,
notes in the manifest where the logs end and as which producer it will append, appends, and notes the write as done
(`committer`, `record`). Whatever crashes, the next owner finds out in the logs what is there and appends the rest.
A write that may not be appended is *refused* as a whole, with the reason. Batches get their offsets from the logs, as
from any producer, unless the manifest has a *placement*: then each batch gets the offset it says (`placer`).
A `bell` wakes the owner when there is a request, and the job when the owner has looked.
"""
