# The C side of batch.py, for value_copy.py.

cdef Py_ssize_t sound_rows(memoryview view, Py_ssize_t at, Py_ssize_t end, long long* row) except? -1
