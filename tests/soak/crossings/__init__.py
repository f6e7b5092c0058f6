"""`python -m tests.soak crossings [--seconds N] [--seed N] [--steps N]`: random steps that combine features.

An engine over a real directory appends with every codec, by idempotent producers and in transactions. Meanwhile
settings take extreme values, the clock jumps, and topics are deleted and recreated. DeleteRecords, compaction and
retention remove records, and the process is killed within any change of the disk. After each step, reads of both
isolation levels and lookups by time are compared with a model. After each close, a check of the directory finds
nothing. Each choice follows from the seed and the number of the step. After a failure, the test looks for fewer steps
that also fail, and prints them with the command that repeats them.
"""
