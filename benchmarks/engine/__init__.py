"""Benchmarks of the engine and its codec in this process, so that the figures include no work of the kernel."""
