"""Reads that wait for the next record, and how they end.

`wakeups` carries news from any thread into the event loop and wakes those that wait, a few in a turn; `signals` sees that
a waiting program wants to end, and `waiting_reads` keeps the waiting reads within a bound and ends them; `polls` is the
poll(2) that waits. `tail` renders what is appended once for all that follow it, and `follow` is the open file.
"""
