# CRC-32C of a few hundred bytes by the processor's own instruction: calling the library costs five times as much there.
# Where the processor or the compiler has none, `has_short_crc32c` says no and nobody calls the other.

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__GNUC__)

    __attribute__((unused)) static int has_short_crc32c(void)
    {
        __builtin_cpu_init();
        return __builtin_cpu_supports("sse4.2") ? 1 : 0;
    }

    __attribute__((target("sse4.2"), unused))
    static uint32_t short_crc32c(const unsigned char *octets, size_t size)
    {
        uint64_t sum = 0xFFFFFFFFu;
        for (; size >= 8; octets += 8, size -= 8) {
            uint64_t word;
            memcpy(&word, octets, 8);
            sum = __builtin_ia32_crc32di(sum, word);
        }
        for (; size; octets++, size--)
            sum = __builtin_ia32_crc32qi((uint32_t) sum, *octets);
        return (uint32_t) sum ^ 0xFFFFFFFFu;
    }

    #else

    __attribute__((unused)) static int has_short_crc32c(void) { return 0; }
    __attribute__((unused)) static uint32_t short_crc32c(const unsigned char *octets, size_t size)
    {
        (void) octets;
        (void) size;
        return 0;
    }

    #endif
    """
    int has_short_crc32c() noexcept
    unsigned int short_crc32c(unsigned char *octets, size_t size) noexcept
