# The C side of headers.py.

cdef class Batches:
    cdef readonly memoryview rows
    cdef readonly Py_ssize_t stop
    cdef readonly object problem
