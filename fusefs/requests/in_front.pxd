# A function with the name of libfuse's, in front of it: pyfuse3, which calls it for each request, finds this one first,
# because the module that holds it is loaded for all to see (RTLD_GLOBAL). Until `take_place` it does nothing but call
# libfuse's. From then on the given function reads requests. It says how many bytes of one that is not common lie in
# `memory`, of which pyfuse3 gets a copy, or a negative errno: -EINTR makes pyfuse3 come again, and with -ENODEV the
# session ends as libfuse sees it, which is asked then.

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <dlfcn.h>
    #include <errno.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/types.h>

    struct fuse_session;
    struct fuse_buf {
        size_t size;
        int flags;
        void *mem;
        int fd;
        off_t pos;
    };

    static long (*read_in_front)(int descriptor) = NULL;
    static const void *memory_in_front = NULL;
    static size_t room_in_front = 0;

    static void *behind(const char *name)
    {
        static const char *const libraries[] = {"libfuse3.so.3", "libfuse3.so.4"};
        size_t index;
        for (index = 0; index < sizeof libraries / sizeof *libraries; index++) {
            void *library = dlopen(libraries[index], RTLD_LAZY | RTLD_NOLOAD);
            void *found = library ? dlsym(library, name) : NULL;
            if (found)
                return found;
        }
        return NULL;
    }

    __attribute__((visibility("default")))
    int fuse_session_receive_buf(struct fuse_session *session, struct fuse_buf *buffer)
    {
        static int (*receive)(struct fuse_session *, struct fuse_buf *) = NULL;
        static int (*descriptor)(struct fuse_session *) = NULL;
        long got;
        if (!receive) {
            *(void **) &receive = behind("fuse_session_receive_buf");
            *(void **) &descriptor = behind("fuse_session_fd");
            if (!receive || !descriptor)
                return -ENOSYS;
        }
        if (!read_in_front)
            return receive(session, buffer);
        got = read_in_front(descriptor(session));
        if (got < 0)
            return got == -ENODEV ? receive(session, buffer) : (int) got;
        if (!buffer->mem && !(buffer->mem = malloc(room_in_front)))
            return -ENOMEM;
        memcpy(buffer->mem, memory_in_front, (size_t) got);
        buffer->flags = 0;
        buffer->size = (size_t) got;
        return (int) got;
    }

    __attribute__((unused))
    static void take_place(long (*reads)(int), const void *memory, size_t room)
    {
        memory_in_front = memory;
        room_in_front = room;
        read_in_front = reads;
    }

    __attribute__((unused))
    static int is_seen_first(void)
    {
        return dlsym(RTLD_DEFAULT, "fuse_session_receive_buf") == (void *) fuse_session_receive_buf;
    }
    """
    void take_place(long (*reads)(int) noexcept, const void *memory, size_t room) noexcept
    int is_seen_first() noexcept
