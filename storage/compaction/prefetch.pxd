# Begin to load what will be needed soon: a slot of a large table lies in no cache, and waiting for one after the other
# costs more than all else that is done with it. Where the compiler cannot say so to the processor, nothing happens.

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define prefetch_word(words, at) __builtin_prefetch((words) + (at))
    #else
    #define prefetch_word(words, at) ((void) 0)
    #endif
    """
    void prefetch_word(long long *words, Py_ssize_t at) noexcept
