"""`python -m tests.soak restarts [--seconds N] [--seed N] [--lives N]`: replicas over restarts with some of their directories.

Two or three real directories replicate two topics. In each life some of them are there, and the others are renamed away,
not named, or replaced by an empty disk; small files and closed segments are damaged before; the engine appends, deletes
records and retains while directories fail and come back; it is closed, or killed inside any change of the disk, also
while it starts. A start that is refused is repeated as its message says: with `--without DIR`, or after `topicfs replicas
resolve`, which saves what it cuts off. After each life no acknowledged record that was on a disk is gone from all of
them without having been saved, readers had each one that a directory which served had, and replicas that are in sync
have the same batches. Each choice follows from the seed and the number of the life; a failure prints fewer lives that fail as well, and their command.
"""
