"""The numbers of a report, which tasks collect and which add up; `page/` shows them.

`histograms` counts by time and by size in bounded memory. `numbers` has the numbers of a partition, `collector` reads
files or brokers, and `counter` counts.
"""
