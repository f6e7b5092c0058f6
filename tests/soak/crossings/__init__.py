"""`python -m tests.soak crossings [--seconds N] [--seed N] [--steps N]`: random steps in which features meet.

An engine over a real directory appends with every codec, by idempotent producers and in transactions, while settings
change at both ends of their ranges, the clock jumps, records are deleted, compacted and retained, topics are deleted
and made again, and the process is killed inside any change of the disk. After each step both isolation levels and
lookups by time are compared with a model, and after each close a check of the directory finds nothing. Each choice
follows from the seed and the number of the step; a failure prints fewer steps that fail as well, and their command.
"""
