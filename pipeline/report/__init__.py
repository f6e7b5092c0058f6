"""The numbers of a report: tasks collect them, and their sums are the report; `page/` shows it.

`histograms` counts by time and by size in bounded memory. `numbers` has the numbers of a partition, and `collector` reads
files or brokers.
"""
