"""Jobs over whole topics. Each job is a function of a session and its options that returns a DataFrame.

The DataFrame reports what the job did or found. A job that writes can be run again: it continues an interrupted run.
"""
