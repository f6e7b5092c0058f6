# The C side of memory.py, for the other compiled modules.

cdef memoryview flat_view(object data)
cdef memoryview part_of(memoryview view, Py_ssize_t start, Py_ssize_t end)
cdef long long checksum_of(memoryview view, Py_ssize_t start, Py_ssize_t end) except? -1
cdef unsigned char* octets_of(memoryview view) except? NULL
cdef long long* int64s_of(memoryview view) except? NULL
cdef unsigned char* writable(bytearray octets) except? NULL
cdef memoryview new_int64s(Py_ssize_t count)
cdef bytearray new_octets(Py_ssize_t size)
cdef object resize(bytearray octets, Py_ssize_t size)
cdef object new_text(Py_ssize_t size)
cdef unsigned char* text_octets(object text) except? NULL
cdef bytes finished(object text)
cdef void copy(unsigned char* target, Py_ssize_t at, unsigned char* source, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t position_of(int octet, unsigned char* source, Py_ssize_t start, Py_ssize_t end) noexcept
