"""The frame of all benchmarks: alternating rounds, ratios, the table, the plots and the page."""
