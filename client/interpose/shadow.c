/* Shadows: which descriptor of the mount belongs to a forwarded one.
 *
 * The table says what this process knows of each number; the kernel has the last word. A shadow counts only while fd still has
 * the object that it had when they were made a pair: whoever closes or replaces fd by a bare system call goes unseen, and the
 * next look finds another object. After an exec the table is empty: then the file system is asked which object the file has. */
#include "shim.h"

#include <stdatomic.h>
#include <sys/sysmacros.h>

enum state {
    UNKNOWN, /* after an exec: perhaps inherited */
    NONE,
    PAIRED,
    DETACHED, /* somebody is putting another file under the number, and will close the shadow */
};
static struct {
    _Atomic unsigned state;
    _Atomic uint64_t dev, ino;
} table[MAX_FD];
static _Atomic int pairs; /* 0: nobody needs to look any further */

static bool in_table(int fd) { return fd >= 0 && fd < settings.limit; }

static void close_number(int number) { KERNEL(close, number); }

bool identify(int fd, struct object *object) {
    struct statx found;
    if (KERNEL(statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &found) != 0)
        return false;
    object->dev = makedev(found.stx_dev_major, found.stx_dev_minor);
    object->ino = found.stx_ino;
    return true;
}

bool is_same(struct object one, struct object other) { return one.dev == other.dev && one.ino == other.ino; }

static void set(int fd, enum state state) {
    enum state old = atomic_exchange(&table[fd].state, state);
    atomic_fetch_add(&pairs, (state == PAIRED) - (old == PAIRED));
}

static void pair(int fd, struct object object) {
    atomic_store(&table[fd].dev, object.dev);
    atomic_store(&table[fd].ino, object.ino);
    set(fd, PAIRED);
}

/* Whether what stands at base + fd has the object of fd: asked when the table cannot know. */
static bool answers_for(int fd, struct object *object) {
    struct object claimed;
    return KERNEL(fcntl, settings.base + fd, F_GETFD, 0) >= 0 && identify(fd, object) &&
           KERNEL(ioctl, settings.base + fd, IOC_OBJECT, &claimed) == 0 && is_same(claimed, *object);
}

static bool adopt(int fd, bool mine) {
    struct object object;
    bool found = answers_for(fd, &object);
    if (mine && found)
        pair(fd, object);
    else if (mine)
        set(fd, NONE);
    return found;
}

static bool forget(int fd) {
    unsigned expected = PAIRED;
    if (!atomic_compare_exchange_strong(&table[fd].state, &expected, NONE))
        return false;
    atomic_fetch_sub(&pairs, 1);
    close_number(settings.base + fd);
    return true;
}

int shadow_of(int fd) {
    if (!in_table(fd))
        return -1;
    enum state state = atomic_load(&table[fd].state);
    if (state == DETACHED || (state == NONE && atomic_load(&pairs) == 0))
        return -1;
    bool mine = is_owner();
    if (!mine || state == UNKNOWN)
        return adopt(fd, mine) ? settings.base + fd : -1;
    if (state == NONE)
        return -1;
    struct object now, then = {atomic_load(&table[fd].dev), atomic_load(&table[fd].ino)};
    if (identify(fd, &now) && is_same(now, then))
        return settings.base + fd;
    forget(fd);
    return -1;
}

int where(int fd) {
    if (!enter())
        return fd;
    int saved = errno, shadow = shadow_of(fd);
    errno = saved;
    leave();
    return shadow >= 0 ? shadow : fd;
}

bool has_shadows(void) { return atomic_load(&pairs) > 0; }

void refresh(int fd) {
    struct statx found;
    int saved = errno;
    KERNEL(statx, fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_SIZE | STATX_MTIME, &found);
    errno = saved;
}

int stand_in(int fd) {
    if (settings.base == 0)
        return fd;
    int shadow = where(fd), saved = errno;
    if (shadow != fd)
        KERNEL(lseek, shadow, KERNEL(lseek, fd, 0, SEEK_CUR), SEEK_SET);
    refresh(shadow); /* the kernel has not seen what was written past the mount, perhaps by another descriptor */
    errno = saved;
    return shadow;
}

int follow(int fd, int shadow) {
    int saved = errno;
    if (shadow != fd)
        KERNEL(lseek, fd, KERNEL(lseek, shadow, 0, SEEK_CUR), SEEK_SET);
    errno = saved;
    return fd;
}

bool shadow_put(int fd, int mount, bool cloexec, const struct object *object) {
    if (!in_table(fd) || atomic_load(&table[fd].state) == DETACHED)
        return false;
    int wanted = settings.base + fd;
    if (KERNEL(fcntl, wanted, F_GETFD, 0) >= 0) /* the program has something of its own there */
        return false;
    int number = (int)KERNEL(fcntl, mount, cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, wanted);
    if (number != wanted) {
        if (number >= 0)
            close_number(number);
        return false;
    }
    if (is_owner())
        pair(fd, *object);
    return true;
}

void shadow_drop(int fd) {
    if (!in_table(fd))
        return;
    enum state state = atomic_load(&table[fd].state);
    if (state == DETACHED || (state == NONE && atomic_load(&pairs) == 0))
        return;
    struct object object;
    if (!is_owner()) {
        if (answers_for(fd, &object))
            close_number(settings.base + fd);
    } else if (state == PAIRED || (state == UNKNOWN && adopt(fd, true))) {
        forget(fd);
    }
}

int shadow_detach(int fd) {
    int shadow = shadow_of(fd);
    if (shadow >= 0 && is_owner())
        set(fd, DETACHED);
    return shadow;
}

void shadow_end(int fd) {
    unsigned expected = DETACHED;
    close_number(settings.base + fd);
    atomic_compare_exchange_strong(&table[fd].state, &expected, NONE);
}

void shadow_reattach(int fd) {
    unsigned expected = DETACHED;
    if (is_owner() && atomic_compare_exchange_strong(&table[fd].state, &expected, PAIRED))
        atomic_fetch_add(&pairs, 1);
}

void shadow_keep(int fd) {
    struct object object;
    if (identify(fd, &object))
        pair(fd, object);
    else
        shadow_end(fd);
}

void shadow_fresh(int fd) {
    if (!in_table(fd) || atomic_load(&table[fd].state) == NONE || !is_owner())
        return;
    if (!forget(fd) && atomic_load(&table[fd].state) == UNKNOWN)
        set(fd, NONE);
}

void shadow_copy(int old, int fd) {
    shadow_fresh(fd);
    struct object object;
    int shadow = shadow_of(old);
    if (shadow < 0 || !identify(fd, &object))
        return;
    int flags = (int)KERNEL(fcntl, fd, F_GETFD, 0);
    if (flags >= 0)
        shadow_put(fd, shadow, (flags & FD_CLOEXEC) != 0, &object);
}

void shadow_forget_from(int fd) {
    if (is_owner())
        for (; fd < settings.limit; fd++)
            set(fd, NONE);
}

bool is_ours(int number) {
    if (number < settings.base - RESERVED)
        return false;
    return is_conversation(number) || (number >= settings.base && shadow_of(number - settings.base) == number);
}

void yield_number(int number) {
    if (number >= settings.base && in_table(number - settings.base) && is_owner())
        set(number - settings.base, NONE);
}
