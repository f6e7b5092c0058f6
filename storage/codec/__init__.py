"""The codec of record batches: bytes in, values out; it uses no file and no clock (kafka-storage.md#record-batches).

Begin with `records`. `headers` and `batch` are about headers, `columns` and `value_copy` read records, `batch_writer`
writes them. The hot loops are compiled from these sources, which also run uncompiled.
"""
