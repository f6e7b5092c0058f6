# The processor's wide registers. Code that leaves their upper halves in use (ISA-L's does) slows down all code of the same
# thread that uses their lower halves alone: snappy by a half. One instruction says that nobody needs them any more.

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)

    __attribute__((target("avx"), unused)) static void zero_upper_halves(void) { __builtin_ia32_vzeroupper(); }

    __attribute__((unused)) static void release_upper_halves(void)
    {
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx"))
            zero_upper_halves();
    }

    #else

    __attribute__((unused)) static void release_upper_halves(void) {}

    #endif
    """
    void release_upper_halves() noexcept nogil
