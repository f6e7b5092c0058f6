# The C side of record_parts.py, for columns.py.

cdef int decode_records(
    unsigned char* octets, Py_ssize_t start, Py_ssize_t end,
    long long* row, Py_ssize_t header,
    long long* columns, Py_ssize_t stride, Py_ssize_t first,
    bint create_times,
) noexcept
cdef memoryview header_spans(memoryview data, Py_ssize_t start, Py_ssize_t stop)
