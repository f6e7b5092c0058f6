# MD5 (RFC 1321) of eight messages side by side: each step of it waits for the one before, so that one message leaves the
# processor idle most of the time, and calling a library for a key of a few bytes costs ten times what the digest does.
# Where the compiler has no vectors or numbers stand in memory the other way round, `has_md5_lanes` says no and nobody
# calls the other.

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

    #define MD5_LANES 8
    #define MD5_BLOCK 64
    #define MD5_LAST_BLOCK(size) (((size) + 8) / MD5_BLOCK)
    #define MD5_ALL(value) {value, value, value, value, value, value, value, value}

    typedef uint32_t md5_lanes __attribute__((vector_size(4 * MD5_LANES)));

    __attribute__((unused)) static int has_md5_lanes(void) { return 1; }

    #define MD5_F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
    #define MD5_G(x, y, z) ((y) ^ ((z) & ((x) ^ (y))))
    #define MD5_H(x, y, z) ((x) ^ (y) ^ (z))
    #define MD5_I(x, y, z) ((y) ^ ((x) | ~(z)))
    #define MD5_STEP(mix, a, b, c, d, word, constant, turn) \\
        a += mix(b, c, d) + words[word] + constant; \\
        a = ((a << turn) | (a >> (32 - turn))) + b;
    #define MD5_FOUR(mix, w0, k0, t0, w1, k1, t1, w2, k2, t2, w3, k3, t3) \\
        MD5_STEP(mix, a, b, c, d, w0, k0, t0) \\
        MD5_STEP(mix, d, a, b, c, w1, k1, t1) \\
        MD5_STEP(mix, c, d, a, b, w2, k2, t2) \\
        MD5_STEP(mix, b, c, d, a, w3, k3, t3)

    /* The digests of eight messages so far, and one more block of each. */
    static void md5_add_block(md5_lanes state[4], const md5_lanes words[16])
    {
        md5_lanes a = state[0], b = state[1], c = state[2], d = state[3];
        MD5_FOUR(MD5_F, 0, 0xD76AA478u, 7, 1, 0xE8C7B756u, 12, 2, 0x242070DBu, 17, 3, 0xC1BDCEEEu, 22)
        MD5_FOUR(MD5_F, 4, 0xF57C0FAFu, 7, 5, 0x4787C62Au, 12, 6, 0xA8304613u, 17, 7, 0xFD469501u, 22)
        MD5_FOUR(MD5_F, 8, 0x698098D8u, 7, 9, 0x8B44F7AFu, 12, 10, 0xFFFF5BB1u, 17, 11, 0x895CD7BEu, 22)
        MD5_FOUR(MD5_F, 12, 0x6B901122u, 7, 13, 0xFD987193u, 12, 14, 0xA679438Eu, 17, 15, 0x49B40821u, 22)
        MD5_FOUR(MD5_G, 1, 0xF61E2562u, 5, 6, 0xC040B340u, 9, 11, 0x265E5A51u, 14, 0, 0xE9B6C7AAu, 20)
        MD5_FOUR(MD5_G, 5, 0xD62F105Du, 5, 10, 0x02441453u, 9, 15, 0xD8A1E681u, 14, 4, 0xE7D3FBC8u, 20)
        MD5_FOUR(MD5_G, 9, 0x21E1CDE6u, 5, 14, 0xC33707D6u, 9, 3, 0xF4D50D87u, 14, 8, 0x455A14EDu, 20)
        MD5_FOUR(MD5_G, 13, 0xA9E3E905u, 5, 2, 0xFCEFA3F8u, 9, 7, 0x676F02D9u, 14, 12, 0x8D2A4C8Au, 20)
        MD5_FOUR(MD5_H, 5, 0xFFFA3942u, 4, 8, 0x8771F681u, 11, 11, 0x6D9D6122u, 16, 14, 0xFDE5380Cu, 23)
        MD5_FOUR(MD5_H, 1, 0xA4BEEA44u, 4, 4, 0x4BDECFA9u, 11, 7, 0xF6BB4B60u, 16, 10, 0xBEBFBC70u, 23)
        MD5_FOUR(MD5_H, 13, 0x289B7EC6u, 4, 0, 0xEAA127FAu, 11, 3, 0xD4EF3085u, 16, 6, 0x04881D05u, 23)
        MD5_FOUR(MD5_H, 9, 0xD9D4D039u, 4, 12, 0xE6DB99E5u, 11, 15, 0x1FA27CF8u, 16, 2, 0xC4AC5665u, 23)
        MD5_FOUR(MD5_I, 0, 0xF4292244u, 6, 7, 0x432AFF97u, 10, 14, 0xAB9423A7u, 15, 5, 0xFC93A039u, 21)
        MD5_FOUR(MD5_I, 12, 0x655B59C3u, 6, 3, 0x8F0CCC92u, 10, 10, 0xFFEFF47Du, 15, 1, 0x85845DD1u, 21)
        MD5_FOUR(MD5_I, 8, 0x6FA87E4Fu, 6, 15, 0xFE2CE6E0u, 10, 6, 0xA3014314u, 15, 13, 0x4E0811A1u, 21)
        MD5_FOUR(MD5_I, 4, 0xF7537E82u, 6, 11, 0xBD3AF235u, 10, 2, 0x2AD7D2BBu, 15, 9, 0xEB86D391u, 21)
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
    }

    /* Block `number` of a message goes into one lane: its bytes, then a one, zeros, and at last its length in bits. */
    static void md5_put_block(
        uint32_t words[16][MD5_LANES], size_t lane, const unsigned char *message, size_t size, size_t number)
    {
        size_t word = 0, at = number * MD5_BLOCK;
        for (; word < 16 && at + 4 <= size; word++, at += 4)
            memcpy(&words[word][lane], message + at, 4);
        if (word < 16 && at <= size) {
            uint32_t rest = 0x80u << 8 * (size - at);
            while (size > at) {
                size_t last = --size;
                rest |= (uint32_t) message[last] << 8 * (last - at);
            }
            words[word][lane] = rest;
        }
    }

    /* Both halves of the digests of up to eight messages, without their highest bits. */
    static void md5_of_eight(
        const unsigned char *data, const long long *positions, const long long *sizes, size_t count,
        long long *halves)
    {
        md5_lanes state[4] = {MD5_ALL(0x67452301u), MD5_ALL(0xEFCDAB89u), MD5_ALL(0x98BADCFEu), MD5_ALL(0x10325476u)};
        md5_lanes block[16];
        uint32_t (*words)[MD5_LANES] = (uint32_t (*)[MD5_LANES]) block;
        size_t lane, number, size[MD5_LANES], end = 0;
        for (lane = 0; lane < count; lane++) {
            size[lane] = sizes[lane] > 0 ? sizes[lane] : 0;
            if (end < MD5_LAST_BLOCK(size[lane]))
                end = MD5_LAST_BLOCK(size[lane]);
        }
        for (number = 0; number <= end; number++) {
            memset(block, 0, sizeof block);
            for (lane = 0; lane < count; lane++) {
                if (number > MD5_LAST_BLOCK(size[lane]))
                    continue;
                md5_put_block(words, lane, data + positions[lane], size[lane], number);
                if (number == MD5_LAST_BLOCK(size[lane])) {
                    words[14][lane] = (uint32_t) (size[lane] << 3);
                    words[15][lane] = (uint32_t) ((uint64_t) size[lane] >> 29);
                }
            }
            md5_add_block(state, block);
            for (lane = 0; lane < count; lane++)
                if (number == MD5_LAST_BLOCK(size[lane])) {
                    halves[2 * lane] = (state[0][lane] | (uint64_t) state[1][lane] << 32) & INT64_MAX;
                    halves[2 * lane + 1] = (state[2][lane] | (uint64_t) state[3][lane] << 32) & INT64_MAX;
                }
        }
    }

    __attribute__((unused)) static void md5_halves(
        const unsigned char *data, const long long *positions, const long long *sizes, size_t count,
        long long *halves)
    {
        size_t at;
        for (at = 0; at < count; at += MD5_LANES)
            md5_of_eight(
                data, positions + at, sizes + at, count - at < MD5_LANES ? count - at : MD5_LANES, halves + 2 * at);
    }

    #else

    __attribute__((unused)) static int has_md5_lanes(void) { return 0; }
    __attribute__((unused)) static void md5_halves(
        const unsigned char *data, const long long *positions, const long long *sizes, size_t count,
        long long *halves)
    {
        (void) data, (void) positions, (void) sizes, (void) count, (void) halves;
    }

    #endif
    """
    int has_md5_lanes() noexcept
    void md5_halves(
        unsigned char *data, long long *positions, long long *sizes, size_t count, long long *halves) noexcept
