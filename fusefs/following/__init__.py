"""Reads that wait for the next record, and how they end.

`wakeups` carries news from any thread into the event loop and wakes those that wait, a few in a turn; `waiting_reads` keeps
the waiting reads within a bound, and ends those whose programs want to end. `tail` renders what is appended once for all that
follow it, and `follow` is the open file.
"""
