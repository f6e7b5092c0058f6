"""The page of a report: HTML, tables and plots from the numbers of all partitions, without Spark."""
