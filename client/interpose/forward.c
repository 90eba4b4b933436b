/* Whether a file that was just opened is worth forwarding, the exchange of descriptors when it is, and the way back.
 *
 * What is only written, or large and only read, is. A file that is opened for both is left to the mount unless this open made or
 * emptied it: it may be a database, and processes that map it (as SQLite does for its write-ahead log) must all map the same
 * file, the mount's, since some of them may run without this library. For the same reason what is mapped for sharing is taken
 * back: object and mount have pages of their own.
 *
 * To put a descriptor under a number is to close what is there, and a process that closes any descriptor of a file loses its
 * record locks on that file: so what is locked stays as it is. (is_locked asks for an open file description, which this
 * process's own locks are in the way of, too.) */
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

/* -- files that this process has mapped -- */

enum { MAPPED_FILES = 64 };
static struct {
    _Atomic uint64_t dev, ino;
} mapped[MAPPED_FILES]; /* the oldest is forgotten; one that was unmapped is not, and stays with the mount */
static _Atomic unsigned mapped_count;

static bool is_mapped(struct object file) {
    for (int place = 0; place < MAPPED_FILES; place++)
        if (atomic_load(&mapped[place].ino) == file.ino && atomic_load(&mapped[place].dev) == file.dev)
            return true;
    return false;
}

static void note_mapped(struct object file) {
    if (is_mapped(file))
        return;
    unsigned place = atomic_fetch_add(&mapped_count, 1) % MAPPED_FILES;
    atomic_store(&mapped[place].dev, file.dev);
    atomic_store(&mapped[place].ino, file.ino);
}

/* -- whether it is worth it -- */

/* Why a file stays with the mount, in a word for the trace; NULL for one that is worth it. */
static const char *reason(int fd, bool is_new, int flags, const struct statx *found) {
    struct object file = {makedev(found->stx_dev_major, found->stx_dev_minor), found->stx_ino};
    if (flags & O_TMPFILE & ~O_DIRECTORY)
        return "unnamed";
    if ((flags & O_ACCMODE) == O_RDWR && !is_new)
        return "update";
    if (flags & O_DIRECT)
        return "direct";
    if (flags & O_DSYNC) /* the mount makes content, name and attributes durable together */
        return "synchronous";
    if ((flags & O_ACCMODE) == O_RDONLY && found->stx_size < settings.min_read_size)
        return "small";
    if (is_mapped(file))
        return "mapped";
    return is_locked(fd) ? "locked" : NULL;
}

bool is_locked(int fd) {
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

/* Only a file of a mount like ours knows that ioctl. */
static bool knows_us(int fd) {
    struct object object;
    return KERNEL(ioctl, fd, IOC_OBJECT, &object) == 0 || errno != ENOTTY;
}

static void note_foreign(uint64_t device) {
    atomic_store(&foreign[atomic_fetch_add(&foreign_count, 1) % FOREIGN_DEVICES], device);
}

/* *content* takes the place of the mount's descriptor: what becomes of it, in a word for the trace. */
static const char *exchange(int fd, int flags, uint64_t device) {
    struct object object;
    int content = ask_for_content(fd, flags, &object), error = errno;
    if (content < 0) {
        if (error == ENOTTY)
            note_foreign(device);
        return error == ENOTTY ? NULL : strerrorname_np(error);
    }
    bool done = put(content, fd, &object);
    KERNEL(close, content);
    return done ? "forwarded" : "busy";
}

static void try(int fd, bool is_new) {
    struct statx found;
    int flags = (int)KERNEL(fcntl, fd, F_GETFL, 0);
    if (flags < 0 || flags & O_PATH)
        return;
    if (KERNEL(statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_SIZE | STATX_INO, &found) != 0)
        return;
    uint64_t device = makedev(found.stx_dev_major, found.stx_dev_minor);
    if (!S_ISREG(found.stx_mode) || is_foreign(device) || !is_owner())
        return;
    const char *what = reason(fd, is_new, flags, &found);
    if (what == NULL)
        what = exchange(fd, flags, device);
    if (settings.trace == NULL || what == NULL)
        return;
    int mount = shadow_of(fd) >= 0 ? settings.base + fd : fd;
    if (knows_us(mount))
        trace(mount, what);
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

/* -- the way back -- */

/* The shadow takes the number fd. Where there are record locks the shadow stays as well: to close any descriptor of a file is to
 * lose them. */
static void put_back(int fd) {
    long flags = KERNEL(fcntl, fd, F_GETFD, 0);
    int shadow = is_owner() ? shadow_detach(fd) : -1;
    if (shadow < 0)
        return;
    KERNEL(lseek, shadow, KERNEL(lseek, fd, 0, SEEK_CUR), SEEK_SET);
    if (flags < 0 || KERNEL(dup3, shadow, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0) != fd)
        shadow_reattach(fd);
    else if (is_locked(fd))
        shadow_keep(fd);
    else
        shadow_end(fd);
}

/* Every descriptor of *file*, which is one of the mount's: copies of one another share an offset. */
static void put_all_back(struct object file) {
    struct object other;
    for (int fd = 0; fd < settings.limit && has_shadows(); fd++)
        if (shadow_of(fd) >= 0 && identify(settings.base + fd, &other) && is_same(file, other))
            put_back(fd);
}

void take_back(int fd) {
    if (!enter())
        return;
    int saved = errno, shadow = shadow_of(fd);
    struct object file;
    if (shadow >= 0 && identify(shadow, &file)) {
        put_all_back(file);
        refresh(fd);
    }
    errno = saved;
    leave();
}

void before_moving(int from, int to) {
    struct object source, target;
    if (!enter())
        return;
    int saved = errno, from_shadow = shadow_of(from), to_shadow = shadow_of(to);
    bool mixed = (from_shadow < 0) != (to_shadow < 0);
    if (mixed && identify(from_shadow < 0 ? from : from_shadow, &source) && identify(to_shadow < 0 ? to : to_shadow, &target) &&
        is_same(source, target))
        put_all_back(source);
    if (shadow_of(from) < 0)
        refresh(from); /* these calls take the size that the kernel remembers */
    errno = saved;
    leave();
}

void before_mapping(int fd, bool shared) {
    if (fd < 0 || !enter())
        return;
    int saved = errno, shadow = shadow_of(fd);
    struct object file;
    if ((shared || (shadow < 0 && has_shadows())) && identify(shadow < 0 ? fd : shadow, &file) && !is_foreign(file.dev)) {
        if (shared)
            note_mapped(file);
        put_all_back(file);
        refresh(fd);
    }
    errno = saved;
    leave();
}
