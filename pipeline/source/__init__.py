"""Reading: the ranges of a query (`query/`), split into tasks that read segments as Arrow batches.

`topic_source` is a query's view of its data directories; `readers` are Spark's interface.
"""
