"""Following: reads that wait for the next record, and how they end.

`wakeups` carries news from any thread into the event loop and wakes those that wait, a few in a turn; `signals` sees that
a waiting program wants to end, and `waiting` keeps the waiting reads within a bound and ends them. `tail` renders what
is appended once for all who follow it, and `follow` is the open file.
"""
