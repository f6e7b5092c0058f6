# The C side of request_counts.py, for `common_requests`.

cdef class RequestCounts:
    cdef public unsigned long long bytes_read
    cdef public unsigned long long bytes_written
    cdef bytearray _table
    cdef dict _errors

    cpdef object note(self, unsigned int kind, long long nanoseconds)

cdef long long now()
