/* The filesystem of empty_filesystem.py in C: what the kernel and libfuse take for a request when nothing else is done.
 *
 *     empty_filesystem MOUNTPOINT LOG_BYTES TEXT TEXT_BYTES
 *
 * TEXT is a file whose first TEXT_BYTES are repeated as the content of `log`; the file has two more megabytes of this
 * content, so that any read is one contiguous piece. One thread answers all requests. The program prints a line once it
 * is mounted, and ends when it is unmounted or gets SIGTERM.
 */
#define FUSE_USE_VERSION 35
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DIRECTORY, LOG, WRITTEN, RECORD, KINDS };
#define FOR_LONG 3600.0
#define RECORD_BYTES 99

static size_t log_bytes, text_bytes;
static const char *text;
static unsigned long long written;

/* An inode number encodes the number of the parent directory and the kind of the file. */
static int kind_of(fuse_ino_t inode) { return inode == FUSE_ROOT_ID ? DIRECTORY : (int)(inode % KINDS); }

static int kind_of_name(const char *name) {
    if (!strcmp(name, "log")) return LOG;
    if (!strcmp(name, "written")) return WRITTEN;
    return name[0] == '@' || (isdigit(name[0]) && name[1]) ? RECORD : DIRECTORY;
}

static struct stat attributes(fuse_ino_t inode) {
    static const mode_t modes[KINDS] = {S_IFDIR | 0755, S_IFREG | 0644, S_IFREG | 0444, S_IFREG | 0444};
    int kind = kind_of(inode);
    struct stat found = {.st_ino = inode, .st_mode = modes[kind], .st_nlink = 1, .st_blksize = 1 << 20};
    found.st_uid = getuid();
    found.st_gid = getgid();
    found.st_size = kind == LOG ? (off_t)log_bytes : kind == RECORD ? RECORD_BYTES : 0;
    return found;
}

static void lookup(fuse_req_t request, fuse_ino_t parent, const char *name) {
    struct fuse_entry_param entry = {.ino = (parent + 1) * KINDS + kind_of_name(name)};
    entry.attr = attributes(entry.ino);
    entry.attr_timeout = entry.entry_timeout = kind_of(entry.ino) == RECORD ? 1.0 : FOR_LONG;
    fuse_reply_entry(request, &entry);
}

static void get_attributes(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) {
    struct stat found = attributes(inode);
    fuse_reply_attr(request, &found, FOR_LONG);
}

static void set_attributes(fuse_req_t request, fuse_ino_t inode, struct stat *given, int fields,
                           struct fuse_file_info *file) {
    get_attributes(request, inode, file);
}

static void get_extended(fuse_req_t request, fuse_ino_t inode, const char *name, size_t size) {
    fuse_reply_err(request, ENODATA);
}

static void open_file(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) {
    file->direct_io = kind_of(inode) != RECORD;
    file->keep_cache = kind_of(inode) == RECORD;
    fuse_reply_open(request, file);
}

static void read_file(fuse_req_t request, fuse_ino_t inode, size_t size, off_t at, struct fuse_file_info *file) {
    char counted[32];
    const char *content = text + at % text_bytes;
    size_t end = log_bytes;
    if (kind_of(inode) == RECORD) {
        content = text + at;
        end = RECORD_BYTES;
    } else if (kind_of(inode) == WRITTEN) {
        content = counted + at;
        end = (size_t)snprintf(counted, sizeof counted, "%llu", written);
    }
    size_t left = (size_t)at < end ? end - (size_t)at : 0;
    fuse_reply_buf(request, content, size < left ? size : left);
}

static void write_file(fuse_req_t request, fuse_ino_t inode, const char *bytes, size_t size, off_t at,
                       struct fuse_file_info *file) {
    written += size;
    fuse_reply_write(request, size);
}

static void done(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) { fuse_reply_err(request, 0); }

static const struct fuse_lowlevel_ops operations = {
    .lookup = lookup, .getattr = get_attributes, .setattr = set_attributes, .getxattr = get_extended,
    .open = open_file, .read = read_file, .write = write_file, .flush = done, .release = done,
};

int main(int count, char **arguments) {
    if (count != 5) return 2;
    log_bytes = strtoull(arguments[2], NULL, 10);
    text_bytes = strtoull(arguments[4], NULL, 10);
    int descriptor = open(arguments[3], O_RDONLY);
    text = mmap(NULL, lseek(descriptor, 0, SEEK_END), PROT_READ, MAP_PRIVATE | MAP_POPULATE, descriptor, 0);
    if (text == MAP_FAILED) return perror(arguments[3]), 1;
    char *options[] = {arguments[0], "-ofsname=emptyfs,subtype=emptyfs", NULL};
    struct fuse_args given = FUSE_ARGS_INIT(2, options);
    struct fuse_session *session = fuse_session_new(&given, &operations, sizeof operations, NULL);
    if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, arguments[1])) return 1;
    puts("mounted");
    fflush(stdout);
    fuse_session_loop(session);
    fuse_session_unmount(session);
    fuse_remove_signal_handlers(session);
    fuse_session_destroy(session);
    return 0;
}
