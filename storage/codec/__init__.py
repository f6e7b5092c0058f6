"""The codec of record batches: bytes in, values out; it uses no file and no clock (kafka-storage.md#record-batches).

Begin with `records`. The hot loops are compiled from these sources, which also run uncompiled.
"""
