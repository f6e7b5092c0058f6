# The C side of topic_counts.py, for the codec.

cdef class TopicCounts:
    cdef public long long small_appends
    cdef public long long larger_appends
    cdef public long long batches
    cdef public long long records
    cdef public long long bytes_appended
    cdef public object reads
    cdef public object engine

    cpdef object note_append(self, long long batches, long long records, long long size_bytes)
