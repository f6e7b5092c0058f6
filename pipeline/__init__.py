"""Topics in and out of Apache Spark: a data directory as a source and a sink of DataFrames, and jobs over it.

What is asked for and which offsets that means is decided by modules that know no Spark; only those that face it import
pyspark, the extra `topicfs[spark]`.
"""
