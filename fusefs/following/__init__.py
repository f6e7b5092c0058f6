"""Reads that wait for the next record, and how they end.

`wakeups` carries news from any thread into the event loop and wakes waiting reads, a few per turn; `waiting_reads`
limits their number, and ends those whose programs want to end. `tail` renders appended records once for all
followers, and `follow` is the open file.
"""
