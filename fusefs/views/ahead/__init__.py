"""Compressed batches inflated ahead of their reader, in threads: stretches, and how many of them there are."""
