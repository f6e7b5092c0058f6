# The C side of device.py, for `common_requests`.

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/uio.h>
    #include <unistd.h>

    __attribute__((unused))
    static long read_device(int descriptor, void *memory, size_t room)
    {
        ssize_t got = read(descriptor, memory, room);
        return got < 0 ? -errno : got;
    }

    __attribute__((unused))
    static long write_device(int descriptor, void *head, size_t head_size, void *body, size_t body_size)
    {
        struct iovec parts[2] = {{head, head_size}, {body, body_size}};
        ssize_t put = writev(descriptor, parts, body_size ? 2 : 1);
        return put < 0 ? -errno : put;
    }

    __attribute__((unused))
    static PyObject *begin_coroutine(PyObject *coroutine, int *ended)
    {
        PyObject *result = NULL;
        *ended = PyIter_Send(coroutine, Py_None, &result) == PYGEN_RETURN;
        return result;
    }
    """
    object begin_coroutine(object coroutine, int *ended)
    long read_device(int descriptor, void *memory, size_t room) noexcept nogil
    long write_device(int descriptor, void *head, size_t head_size, void *body, size_t body_size) noexcept nogil

cdef long receive(int descriptor, unsigned char *memory, Py_ssize_t room) except? -1000
cdef long answer(int descriptor, unsigned char *head, Py_ssize_t head_size, object body) except? -1000
cdef tuple begin(object coroutine)
cdef unsigned long long number_at(unsigned char *memory, Py_ssize_t at, int size) noexcept
cdef void put_number(unsigned char *memory, Py_ssize_t at, int size, unsigned long long number) noexcept
cdef bytes octets_at(unsigned char *memory, Py_ssize_t at, Py_ssize_t size)
