"""Reads that wait for the next record, and how they end.

`wakeups` delivers news from any thread to the event loop and wakes waiting reads, a few per turn. `waiting_reads`
limits the number of waiting reads, and ends a read whose program wants to end. `tail` renders appended records once
for all followers, and `follow` is the open file.
"""
