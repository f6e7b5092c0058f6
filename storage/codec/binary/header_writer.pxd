# The C side of header_writer.py, for batch_writer.py.

cdef void put_header(unsigned char* target, long long size, long long base_offset, long long last_delta, long long base_timestamp, long long max_timestamp, long long count) noexcept
cdef void put_stamp(unsigned char* target, long long leader_epoch, long long attributes, long long producer_id, long long producer_epoch, long long base_sequence) noexcept
cdef void seal(memoryview batch) except *
