"""Benchmarks of the engine and its codec, in this process: no kernel between the figure and the code."""
