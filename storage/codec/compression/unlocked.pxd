# The C side of unlocked.py: the libraries' own functions, and snappy's format, whose library exports none.
#
# Nothing here raises or needs the interpreter. What is not exactly as producers write it is left to `codecs`, which knows
# all forms of each format and says what is wrong: -1 means no more than that.

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <dlfcn.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>

    /* Bytes behind the content's room that copying in whole words may overwrite. */
    #define UNLOCKED_SLACK 64
    /* More than ISA-L's struct inflate_state takes, of which only the first fields below are used. */
    #define UNLOCKED_STATE_BYTES (256 * 1024)

    struct unlocked_gzip {
        unsigned char *next_out;
        uint32_t avail_out;
        uint32_t total_out;
        const unsigned char *next_in;
        uint64_t read_in;
        uint32_t avail_in;
        int32_t read_in_length;
    };

    struct unlocked_workspace {
        size_t room;
        unsigned char *content;
        void *zstd;
        struct unlocked_gzip *gzip;
    };

    static int (*unlocked_lz4)(const char *, char *, int, int) = NULL;
    static void *(*unlocked_new_zstd)(void) = NULL;
    static size_t (*unlocked_free_zstd)(void *) = NULL;
    static size_t (*unlocked_zstd)(void *, void *, size_t, const void *, size_t) = NULL;
    static unsigned (*unlocked_zstd_failed)(size_t) = NULL;
    static size_t (*unlocked_zstd_frame)(const void *, size_t) = NULL;
    static void (*unlocked_begin_gzip)(void *) = NULL;
    static int (*unlocked_gzip)(void *) = NULL;
    static uint32_t (*unlocked_gzip_sum)(uint32_t, const unsigned char *, uint64_t) = NULL;

    /* The seven bytes before the first block: flags without and with a checksum behind the content, which Kafka does not
       look at; and the last byte, the header's checksum, for blocks of 64 KiB to 4 MiB. */
    static const unsigned char unlocked_lz4_sums[2][4] = {{0x82, 0xfb, 0x51, 0x73}, {0xa7, 0x08, 0x85, 0xb9}};

    __attribute__((unused))
    static int unlocked_load(int codec, const char *path)
    {
        void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        if (!library)
            return 0;
        switch (codec) {
        case 1:
            *(void **) &unlocked_begin_gzip = dlsym(library, "isal_inflate_init");
            *(void **) &unlocked_gzip_sum = dlsym(library, "crc32_gzip_refl");
            *(void **) &unlocked_gzip = dlsym(library, "isal_inflate_stateless");
            if (!unlocked_begin_gzip || !unlocked_gzip_sum)
                unlocked_gzip = NULL;
            return unlocked_gzip != NULL;
        case 3:
            *(void **) &unlocked_lz4 = dlsym(library, "LZ4_decompress_safe");
            return unlocked_lz4 != NULL;
        case 4:
            *(void **) &unlocked_new_zstd = dlsym(library, "ZSTD_createDCtx");
            *(void **) &unlocked_free_zstd = dlsym(library, "ZSTD_freeDCtx");
            *(void **) &unlocked_zstd_failed = dlsym(library, "ZSTD_isError");
            *(void **) &unlocked_zstd_frame = dlsym(library, "ZSTD_findFrameCompressedSize");
            *(void **) &unlocked_zstd = dlsym(library, "ZSTD_decompressDCtx");
            if (!unlocked_new_zstd || !unlocked_free_zstd || !unlocked_zstd_failed || !unlocked_zstd_frame)
                unlocked_zstd = NULL;
            return unlocked_zstd != NULL;
        }
        return 0;
    }

    __attribute__((unused))
    static void *unlocked_new(size_t room)
    {
        struct unlocked_workspace *space = calloc(1, sizeof *space);
        if (space && !(space->content = malloc(room + UNLOCKED_SLACK))) {
            free(space);
            return NULL;
        }
        if (space)
            space->room = room;
        return space;
    }

    __attribute__((unused))
    static void unlocked_free(void *memory)
    {
        struct unlocked_workspace *space = memory;
        if (!space)
            return;
        if (space->zstd)
            unlocked_free_zstd(space->zstd);
        free(space->gzip);
        free(space->content);
        free(space);
    }

    static long unlocked_inflate_gzip(
        struct unlocked_workspace *space, const unsigned char *data, size_t size, size_t room)
    {
        struct unlocked_gzip *state = space->gzip;
        uint32_t sum, length;
        size_t made;
        /* One member, whose header says nothing but that it is one. */
        if (!unlocked_gzip || size < 18 || data[0] != 0x1f || data[1] != 0x8b || data[2] != 8 || data[3] != 0)
            return -1;
        if (!state && !(state = space->gzip = calloc(1, UNLOCKED_STATE_BYTES)))
            return -1;
        unlocked_begin_gzip(state);
        state->next_in = data + 10;
        state->avail_in = (uint32_t) (size - 18);
        state->next_out = space->content;
        state->avail_out = (uint32_t) room;
        if (unlocked_gzip(state) != 0 || state->next_in != data + size - 8)
            return -1;
        made = (size_t) (state->next_out - space->content);
        memcpy(&sum, data + size - 8, 4);
        memcpy(&length, data + size - 4, 4);
        if (length != made || sum != unlocked_gzip_sum(0, space->content, made))
            return -1;
        return (long) made;
    }

    /* One raw block of snappy: its content's length as a varint, then literals and copies of what was written before. */
    static long unlocked_inflate_snappy_block(
        const unsigned char *at, const unsigned char *end, unsigned char *target, size_t room)
    {
        unsigned char *out = target, *stop;
        uint32_t declared = 0;
        unsigned shift = 0;
        for (;; shift += 7) {
            if (at == end || shift > 28)
                return -1;
            declared |= (uint32_t) (*at & 0x7f) << shift;
            if (!(*at++ & 0x80))
                break;
        }
        if (declared > room || (shift == 28 && at[-1] > 0x0f))
            return -1;
        stop = target + declared;
        while (at < end) {
            unsigned tag = *at++;
            size_t length, distance, number;
            if ((tag & 3) == 0) {
                length = (tag >> 2) + 1;
                /* Most literals are short: sixteen bytes are copied whatever their number. */
                if (length <= 16 && end - at >= 16 && (size_t) (stop - out) >= length) {
                    memcpy(out, at, 16);
                    at += length;
                    out += length;
                    continue;
                }
                if (length > 60) {
                    size_t octets = length - 60;
                    if ((size_t) (end - at) < octets)
                        return -1;
                    for (length = 0, number = 0; number < octets; number++)
                        length |= (size_t) at[number] << (8 * number);
                    length++;
                    at += octets;
                }
                if ((size_t) (end - at) < length || (size_t) (stop - out) < length)
                    return -1;
                memcpy(out, at, length);
                at += length;
                out += length;
                continue;
            }
            if ((tag & 3) == 1) {
                if (at == end)
                    return -1;
                length = ((tag >> 2) & 7) + 4;
                distance = ((size_t) (tag >> 5) << 8) | *at++;
            } else if ((tag & 3) == 2) {
                if (end - at < 2)
                    return -1;
                length = (tag >> 2) + 1;
                distance = at[0] | (size_t) at[1] << 8;
                at += 2;
            } else {
                if (end - at < 4)
                    return -1;
                length = (tag >> 2) + 1;
                distance = at[0] | (size_t) at[1] << 8 | (size_t) at[2] << 16 | (size_t) at[3] << 24;
                at += 4;
            }
            if (!distance || distance > (size_t) (out - target) || (size_t) (stop - out) < length)
                return -1;
            if (distance >= 16) {
                /* At most 64 bytes, in steps that do not overlap; those beyond are written over, or lie in the slack. */
                const unsigned char *from = out - distance;
                memcpy(out, from, 16);
                for (number = 16; number < length; number += 16)
                    memcpy(out + number, from + number, 16);
            } else if (distance >= 8) {
                const unsigned char *from = out - distance;
                for (number = 0; number < length; number += 8)
                    memcpy(out + number, from + number, 8);
            } else {
                for (number = 0; number < length; number++)
                    out[number] = *(out + number - distance);
            }
            out += length;
        }
        return out == stop ? (long) declared : -1;
    }

    static uint32_t unlocked_big_endian(const unsigned char *at)
    {
        return (uint32_t) at[0] << 24 | (uint32_t) at[1] << 16 | (uint32_t) at[2] << 8 | at[3];
    }

    static long unlocked_inflate_snappy(
        unsigned char *content, const unsigned char *data, size_t size, size_t room, size_t max_parts)
    {
        static const unsigned char magic[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
        const unsigned char *at = data + 16, *end = data + size;
        size_t made = 0, parts = 0;
        if (size < 16 || memcmp(data, magic, 8))
            return unlocked_inflate_snappy_block(data, end, content, room);
        while (at < end) {
            uint32_t length;
            long part;
            if (end - at < 4 || ++parts > max_parts)
                return -1;
            length = unlocked_big_endian(at);
            at += 4;
            if ((size_t) (end - at) < length)
                return -1;
            part = unlocked_inflate_snappy_block(at, at + length, content + made, room - made);
            if (part < 0)
                return -1;
            at += length;
            made += (size_t) part;
        }
        return (long) made;
    }

    static long unlocked_inflate_lz4(
        unsigned char *content, const unsigned char *data, size_t size, size_t room, size_t max_parts)
    {
        static const unsigned char head[4] = {0x04, 0x22, 0x4d, 0x18};
        const unsigned char *at = data + 7, *end = data + size;
        size_t made = 0, parts = 0, largest;
        if (!unlocked_lz4 || size < 11 || memcmp(data, head, 4) || (data[4] & ~4) != 0x60
            || (data[5] & 0x8f) || data[5] < 0x40)
            return -1;
        if (data[6] != unlocked_lz4_sums[data[4] >> 2 & 1][(data[5] >> 4) - 4])
            return -1;
        largest = (size_t) 1 << (8 + 2 * (data[5] >> 4));
        for (;;) {
            uint32_t length;
            size_t left = room - made < largest ? room - made : largest;
            int stored, part;
            if (end - at < 4)
                return -1;
            length = at[0] | (uint32_t) at[1] << 8 | (uint32_t) at[2] << 16 | (uint32_t) at[3] << 24;
            at += 4;
            if (!(length & 0x7fffffff))
                return (data[4] & 4) && end - at < 4 ? -1 : (long) made;
            stored = length >> 31;
            length &= 0x7fffffff;
            if (length > largest || (size_t) (end - at) < length || ++parts > max_parts)
                return -1;
            if (stored) {
                if (length > left)
                    return -1;
                memcpy(content + made, at, length);
                part = (int) length;
            } else {
                part = unlocked_lz4((const char *) at, (char *) content + made, (int) length, (int) left);
            }
            if (part < 0)
                return -1;
            at += length;
            made += (size_t) part;
        }
    }

    static long unlocked_inflate_zstd(
        struct unlocked_workspace *space, const unsigned char *data, size_t size, size_t room)
    {
        size_t made;
        if (!unlocked_zstd || (!space->zstd && !(space->zstd = unlocked_new_zstd())))
            return -1;
        /* One frame, whose window is none that a stream's reader would refuse: a byte says so, unless all is one window. */
        if (size < 6 || (!(data[4] & 0x20) && data[5] >> 3 > 16) || unlocked_zstd_frame(data, size) != size)
            return -1;
        made = unlocked_zstd(space->zstd, space->content, room, data, size);
        return unlocked_zstd_failed(made) ? -1 : (long) made;
    }

    __attribute__((unused))
    static unsigned char *unlocked_content(void *memory)
    {
        struct unlocked_workspace *space = memory;
        return space->content;
    }

    __attribute__((unused))
    static long unlocked_inflate(
        void *memory, int codec, const unsigned char *data, size_t size, size_t room, size_t max_parts)
    {
        struct unlocked_workspace *space = memory;
        if (room > space->room)
            room = space->room;
        switch (codec) {
        case 1:
            return unlocked_inflate_gzip(space, data, size, room);
        case 2:
            return unlocked_inflate_snappy(space->content, data, size, room, max_parts);
        case 3:
            return unlocked_inflate_lz4(space->content, data, size, room, max_parts);
        case 4:
            return unlocked_inflate_zstd(space, data, size, room);
        }
        return -1;
    }
    """
    int unlocked_load(int codec, const char *path) noexcept
    void *unlocked_new(size_t room) noexcept
    void unlocked_free(void *memory) noexcept
    unsigned char *unlocked_content(void *memory) noexcept nogil
    long unlocked_inflate(
        void *memory, int codec, unsigned char *data, size_t size, size_t room, size_t max_parts) noexcept nogil

cdef class Workspace:
    cdef void *_space

cdef void *space_of(Workspace workspace) noexcept
cdef unsigned char *content_of(void *space) noexcept nogil
cdef long inflate_in(
    void *space, int codec, unsigned char *source, Py_ssize_t start, Py_ssize_t end,
    Py_ssize_t room, Py_ssize_t max_parts) noexcept nogil
