"""The numbers of a report: tasks collect the numbers, the driver adds them up, and `page/` shows the sums.

`histograms` counts by time and by size in bounded memory. `numbers` has the numbers of a partition, and `collector`
reads segment files or brokers.
"""
