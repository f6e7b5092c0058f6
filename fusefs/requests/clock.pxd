# A clock that only goes forward, without an object for each look at it.

cdef extern from *:
    """
    #include <time.h>

    __attribute__((unused))
    static long long monotonic_ns(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
    }
    """
    long long monotonic_ns() noexcept
