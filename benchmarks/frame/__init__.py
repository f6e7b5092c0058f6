"""The frame of all benchmarks: rounds in turn, ratios, the table, the plots and the page."""
