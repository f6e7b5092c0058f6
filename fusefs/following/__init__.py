"""Following: reads that wait for the next record, and how they end.

`wakeups` carries news from any thread into the event loop, `signals` sees that a waiting program wants to end,
`waiting` keeps the waiting reads within a bound and ends them, and `follow` is the open file.
"""
