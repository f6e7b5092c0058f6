"""Record batches as bytes and as values: bytes in, values out; no file, no clock.

`batch` knows the 61-byte header, `records` what follows it, `columns` the values both yield, `control` the
markers of transactions. The hot loops are compiled from these very sources, which also run uncompiled.
"""
