"""`python -m tests.soak restarts [--seconds N] [--seed N] [--lives N]`: replicas restart without some directories.

Two or three real directories replicate two topics. A life is one start and end of the engine. In each life some of
the directories are present, while the others are renamed away, not named, or replaced by an empty disk. Before the
start, small files and closed segments are damaged. The engine appends, deletes records and applies retention while
directories fail and recover. The engine is closed, or killed within any change of the disk, even while it starts. A
refused start is repeated as its message says: with `--without DIR`, or after `topicfs replicas resolve`, which saves
the records that it cuts off. After each life, three rules are checked. Each acknowledged record that was on a disk is
still on a disk or was saved, readers got each record that a serving directory had, and in-sync replicas have the same
batches. Each choice follows from the seed and the number of the life. After a failure, the test looks for fewer lives
that also fail, and prints them with the command that repeats them.
"""
