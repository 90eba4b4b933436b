/* Whether a file that was just opened is worth forwarding, and the exchange of descriptors when it is.
 *
 * What is only written, or large and only read, is. A file that is opened for both is left to the mount unless this open made or
 * emptied it: it may be a database, and processes that map it (as SQLite does for its write-ahead log) must all map the same
 * file, the mount's, since some of them may run without this library. */
#include "shim.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/sysmacros.h>

enum { FOREIGN_DEVICES = 16 };
static _Atomic uint64_t foreign[FOREIGN_DEVICES]; /* those that know nothing of us; 0 is no device of a regular file */
static _Atomic unsigned foreign_count;

static bool is_foreign(uint64_t device) {
    for (int place = 0; place < FOREIGN_DEVICES; place++)
        if (atomic_load_explicit(&foreign[place], memory_order_relaxed) == device)
            return true;
    return false;
}

static void trace(int fd, int error) {
    char line[PATH_MAX + 128], link[LINK_SIZE], path[PATH_MAX], name[32] = "?";
    int file = (int)KERNEL(openat, AT_FDCWD, settings.trace, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = KERNEL(readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = '\0';
    int comm = (int)KERNEL(openat, AT_FDCWD, "/proc/self/comm", O_RDONLY | O_CLOEXEC, 0);
    long got = comm < 0 ? -1 : KERNEL(read, comm, name, sizeof name - 1);
    if (got > 0)
        name[got - 1] = '\0'; /* it ends with a newline */
    KERNEL(close, comm);
    int size = snprintf(line, sizeof line, "%s %d %s %s\n", error ? strerrorname_np(error) : "forwarded", getpid(), name, path);
    KERNEL(write, file, line, (size_t)size < sizeof line ? (size_t)size : sizeof line);
    KERNEL(close, file);
}

static bool is_worth_it(int fd, bool is_new, int flags, uint64_t *device) {
    struct statx found;
    if ((flags & O_ACCMODE) == O_RDWR && !is_new)
        return false;
    if (flags < 0 || flags & (O_PATH | O_DIRECT | O_DIRECTORY | (O_TMPFILE & ~O_DIRECTORY)))
        return false;
    if (KERNEL(statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_SIZE, &found) != 0)
        return false;
    if (!S_ISREG(found.stx_mode))
        return false;
    *device = makedev(found.stx_dev_major, found.stx_dev_minor);
    return !is_foreign(*device) && ((flags & O_ACCMODE) != O_RDONLY || found.stx_size >= settings.min_read_size);
}

/* Whether anybody has a record lock on the file. To put a descriptor under fd is to close what is there, and a process that
 * closes any descriptor of a file loses its record locks on that file. (Asked for an open file description, which this
 * process's own locks are in the way of, too.) */
static bool is_locked(int fd) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return KERNEL(fcntl, fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* *content* takes the number fd, whose descriptor becomes its shadow. */
static bool put(int content, int fd, const struct object *object) {
    struct object real_one;
    long descriptor_flags = KERNEL(fcntl, fd, F_GETFD, 0), offset = KERNEL(lseek, fd, 0, SEEK_CUR);
    bool cloexec = (descriptor_flags & FD_CLOEXEC) != 0;
    if (descriptor_flags < 0 || !identify(content, &real_one) || real_one.dev != object->dev || real_one.ino != object->ino)
        return false;
    if (offset > 0 && KERNEL(lseek, content, offset, SEEK_SET) != offset) /* fopen(3) goes to the end to append */
        return false;
    if (!shadow_put(fd, fd, cloexec, object))
        return false;
    if (KERNEL(dup3, content, fd, cloexec ? O_CLOEXEC : 0) == fd)
        return true;
    shadow_drop(fd);
    return false;
}

static void try(int fd, bool is_new) {
    uint64_t device;
    struct object object;
    int flags = (int)KERNEL(fcntl, fd, F_GETFL, 0);
    if (!is_worth_it(fd, is_new, flags, &device) || is_locked(fd) || !is_owner())
        return;
    int content = ask_for_content(fd, flags, &object), error = content < 0 ? errno : 0;
    if (content >= 0 && !put(content, fd, &object))
        error = EBUSY;
    if (content >= 0)
        KERNEL(close, content);
    if (error == ENOTTY)
        atomic_store(&foreign[atomic_fetch_add(&foreign_count, 1) % FOREIGN_DEVICES], device);
    else if (settings.trace != NULL)
        trace(error ? fd : settings.base + fd, error);
}

int forward(int fd, bool is_new) {
    if (fd < 0 || fd >= settings.limit || !enter())
        return fd;
    int saved = errno;
    shadow_fresh(fd);
    try(fd, is_new);
    errno = saved;
    leave();
    return fd;
}
