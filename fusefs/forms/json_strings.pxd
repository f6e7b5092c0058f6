# The C side of json_strings.py, for the other compiled modules.

cdef Py_ssize_t field_size(unsigned char* source, Py_ssize_t start, long long length, bint lenient) noexcept
cdef Py_ssize_t put_field(
    unsigned char* target, Py_ssize_t at, unsigned char* source, Py_ssize_t start, long long length, bint base64
) noexcept
cdef Py_ssize_t put_string(
    unsigned char* target, Py_ssize_t at, unsigned char* source, Py_ssize_t start, long long length
) noexcept
cdef Py_ssize_t base64_size(long long length) noexcept
cdef Py_ssize_t integer_size(long long value) noexcept
cdef Py_ssize_t put_integer(unsigned char* target, Py_ssize_t at, long long value) noexcept
cdef Py_ssize_t put_text(unsigned char* target, Py_ssize_t at, bytes text) noexcept
