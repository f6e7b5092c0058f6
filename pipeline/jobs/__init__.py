"""The heavy work over many topics: each job a function of a session and its options that gives a DataFrame.

What a job did or found is its result; where it writes, it may be run again: an interrupted run is gone on with.
"""
