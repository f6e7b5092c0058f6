# CRC-32C by the processor's own instruction: of a few hundred bytes, where calling the library costs five times as much;
# and of three buffers side by side, for the instruction takes three cycles and a new one can begin in each of them.
# Where the processor or the compiler has none, `has_short_crc32c` says no and nobody calls the others.

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
    static uint32_t rest_of_crc32c(uint64_t sum, const unsigned char *octets, size_t size)
    {
        for (; size >= 8; octets += 8, size -= 8) {
            uint64_t word;
            memcpy(&word, octets, 8);
            sum = __builtin_ia32_crc32di(sum, word);
        }
        for (; size; octets++, size--)
            sum = __builtin_ia32_crc32qi((uint32_t) sum, *octets);
        return (uint32_t) sum ^ 0xFFFFFFFFu;
    }

    __attribute__((target("sse4.2"), unused))
    static uint32_t short_crc32c(const unsigned char *octets, size_t size)
    {
        return rest_of_crc32c(0xFFFFFFFFu, octets, size);
    }

    __attribute__((target("sse4.2"), unused))
    static int three_crc32c_fit(
        const unsigned char *first, size_t first_size, uint32_t first_sum,
        const unsigned char *second, size_t second_size, uint32_t second_sum,
        const unsigned char *third, size_t third_size, uint32_t third_sum)
    {
        size_t shared = first_size < second_size ? first_size : second_size;
        uint64_t sums[3] = {0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu};
        size_t at;
        shared = (shared < third_size ? shared : third_size) & ~(size_t) 7;
        for (at = 0; at < shared; at += 8) {
            uint64_t words[3];
            memcpy(&words[0], first + at, 8);
            memcpy(&words[1], second + at, 8);
            memcpy(&words[2], third + at, 8);
            sums[0] = __builtin_ia32_crc32di(sums[0], words[0]);
            sums[1] = __builtin_ia32_crc32di(sums[1], words[1]);
            sums[2] = __builtin_ia32_crc32di(sums[2], words[2]);
        }
        return rest_of_crc32c(sums[0], first + at, first_size - at) == first_sum
            && rest_of_crc32c(sums[1], second + at, second_size - at) == second_sum
            && rest_of_crc32c(sums[2], third + at, third_size - at) == third_sum;
    }

    #else

    __attribute__((unused)) static int has_short_crc32c(void) { return 0; }
    __attribute__((unused)) static uint32_t short_crc32c(const unsigned char *octets, size_t size)
    {
        (void) octets;
        (void) size;
        return 0;
    }
    __attribute__((unused)) static int three_crc32c_fit(
        const unsigned char *first, size_t first_size, uint32_t first_sum,
        const unsigned char *second, size_t second_size, uint32_t second_sum,
        const unsigned char *third, size_t third_size, uint32_t third_sum)
    {
        (void) first, (void) first_size, (void) first_sum;
        (void) second, (void) second_size, (void) second_sum;
        (void) third, (void) third_size, (void) third_sum;
        return 0;
    }

    #endif
    """
    int has_short_crc32c() noexcept
    unsigned int short_crc32c(unsigned char *octets, size_t size) noexcept
    int three_crc32c_fit(
        unsigned char *first, size_t first_size, unsigned int first_sum,
        unsigned char *second, size_t second_size, unsigned int second_sum,
        unsigned char *third, size_t third_size, unsigned int third_sum) noexcept
