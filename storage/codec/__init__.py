"""The codec of record batches: it turns bytes into values and back, without files or a clock.

Begin with `records`; kafka-storage.md#record-batches describes the format. The hot loops are compiled from these
sources, which also run uncompiled.
"""
