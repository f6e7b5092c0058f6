"""What the owner of data directories does without being asked.

`schedule` says which duty is due when. `cleaning` compacts, `staged_writes` appends what other processes handed in, and
`planning` tells what retention and compaction would do.
"""
