# The C side of wire.py: the same names, as constants of the C compiler.

cdef enum:
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    OPEN = 14
    READ = 15
    WRITE = 16
    RELEASE = 18
    FLUSH = 25
    BATCH_FORGET = 42

    REQUEST_HEADER_SIZE = 40
    WRITE_HEADER_SIZE = 80
    ANSWER_HEADER_SIZE = 16
    ENTRY_SIZE = 128
    ENTRY_HEADER_SIZE = 40
    ATTRIBUTES_ANSWER_SIZE = 104
    ATTRIBUTES_HEADER_SIZE = 16
    OPENED_SIZE = 16
    WRITTEN_SIZE = 8

    DIRECT_IO = 1
    KEEP_CACHE = 2
    NO_FLUSH = 32

    LARGEST_REQUEST_SIZE = 1052672
