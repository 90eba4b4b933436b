/* Closing, duplicating, and the close-on-exec flag: what happens to a descriptor happens to its shadow. */
#include "shim.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4U
#endif

/* The shadow goes first: while fd is there, no other thread can get its number. Somebody who closes all numbers meets ours as
 * numbers that are not open. */
EXPORT int close(int fd) {
    if (enter()) {
        int saved = errno;
        bool ours = is_ours(fd);
        if (!ours)
            shadow_drop(fd);
        leave();
        errno = ours ? EBADF : saved;
        if (ours)
            return -1;
    }
    return REAL(close)(fd);
}

/* What the stream still holds is written before the shadow goes: the daemon shall hear of the end after that. */
EXPORT int fclose(FILE *stream) {
    int saved = errno, fd = fileno(stream);
    errno = saved;
    if (fd >= 0 && where(fd) != fd) {
        fflush(stream); /* what fails here fails there again */
        if (enter()) {
            shadow_drop(fd);
            leave();
        }
        errno = saved;
    }
    return REAL(fclose)(stream);
}

/* -- many at once -- */

/* The numbers from *first* to *last* that are the program's: all but the socket, and the shadows of what stays open. */
static int close_around_ours(unsigned first, unsigned last, int flags) {
    unsigned from = first, stays = (unsigned)settings.base + first;
    int result = 0;
    for (unsigned number = (unsigned)settings.base - RESERVED; number < stays && number <= last; number++) {
        if (number < first || !is_ours((int)number))
            continue;
        if (number > from && REAL(close_range)(from, number - 1, flags) != 0)
            result = -1;
        from = number + 1;
    }
    if (from <= last && REAL(close_range)(from, last, flags) != 0)
        result = -1;
    return result;
}

static void tell_shadow(int fd, bool cloexec) {
    int shadow = shadow_of(fd);
    if (shadow >= 0)
        KERNEL(fcntl, shadow, F_SETFD, cloexec ? FD_CLOEXEC : 0);
}

static void shadows_of_range(unsigned first, unsigned last, int flags) {
    for (unsigned fd = first; fd <= last; fd++)
        if (flags & (int)CLOSE_RANGE_CLOEXEC)
            tell_shadow((int)fd, true);
        else
            shadow_drop((int)fd);
}

EXPORT int close_range(unsigned first, unsigned last, int flags) {
    if (first > last || first >= (unsigned)settings.limit || !enter())
        return REAL(close_range)(first, last, flags);
    int saved = errno, result;
    if (last < (unsigned)(settings.base - RESERVED)) {
        shadows_of_range(first, last < (unsigned)settings.limit ? last : (unsigned)settings.limit - 1, flags);
        errno = saved;
        result = REAL(close_range)(first, last, flags);
    } else if (last < (unsigned)(settings.base + settings.limit)) { /* a border among the shadows: whose they are is not clear */
        errno = saved;
        result = REAL(close_range)(first, last, flags);
    } else {
        errno = saved;
        result = close_around_ours(first, last, flags);
        if (result == 0 && !(flags & (int)CLOSE_RANGE_CLOEXEC))
            shadow_forget_from((int)first);
    }
    leave();
    return result;
}

EXPORT void closefrom(int first) {
    if (settings.base == 0 || close_range(first < 0 ? 0 : (unsigned)first, UINT_MAX, 0) != 0)
        REAL(closefrom)(first);
}

/* -- copies -- */

int copied(int old, int fd) {
    if (fd >= 0 && enter()) {
        int saved = errno;
        shadow_copy(old, fd);
        errno = saved;
        leave();
    }
    return fd;
}

/* Before fd becomes something else: its shadow, which nobody uses from now on, or -1. */
static int detached(int fd) {
    int shadow = -1;
    if (enter()) {
        int saved = errno;
        shadow = shadow_detach(fd);
        yield_number(fd);
        errno = saved;
        leave();
    }
    return shadow;
}

static int replaced(int old, int fd, int done, int shadow) {
    int saved = errno;
    if (shadow >= 0 && done >= 0)
        shadow_end(fd);
    else if (shadow >= 0)
        shadow_reattach(fd);
    errno = saved;
    return copied(old, done);
}

EXPORT int dup(int old) { return copied(old, REAL(dup)(old)); }

EXPORT int dup2(int old, int fd) {
    if (old == fd)
        return REAL(dup2)(old, fd);
    int shadow = detached(fd), done = REAL(dup2)(old, fd);
    return replaced(old, fd, done, shadow);
}

EXPORT int dup3(int old, int fd, int flags) {
    if (old == fd)
        return REAL(dup3)(old, fd, flags);
    int shadow = detached(fd), done = REAL(dup3)(old, fd, flags);
    return replaced(old, fd, done, shadow);
}

void mirror_cloexec(int fd, bool cloexec) {
    if (enter()) {
        int saved = errno;
        tell_shadow(fd, cloexec);
        errno = saved;
        leave();
    }
}
