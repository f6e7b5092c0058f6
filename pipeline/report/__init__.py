"""The numbers of a report, which tasks collect and which add up; `page/` shows them.

`histograms` counts by time and by size in bounded memory. `numbers` has the numbers of a partition, and `arrow_rows`
carries them between tasks; `counter` and `segment_collector` collect them from files, `record_collector` from brokers.
"""
