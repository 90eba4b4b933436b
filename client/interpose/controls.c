/* fcntl(2), ioctl(2) and epoll_ctl(2). But for what is about the number itself, the mount answers: an object knows other commands
 * and other limits, which depend on where the daemon keeps it. */
#include "shim.h"

#include <linux/fs.h>
#include <stdarg.h>

#ifndef F_DUPFD_QUERY
#define F_DUPFD_QUERY 1027
#endif

/* Direct input and output is the mount's: the object may ask for an alignment, and other calls answer otherwise then, too. */
static int set_flags(__typeof__(fcntl) *call, int fd, void *flags) {
    if ((uintptr_t)flags & O_DIRECT)
        take_back(fd);
    int shadow = where(fd), done = call(shadow, F_SETFL, flags), saved = errno;
    if (done == 0 && shadow != fd)
        KERNEL(fcntl, fd, F_SETFL, flags);
    errno = saved;
    return done;
}

static int set_descriptor_flags(__typeof__(fcntl) *call, int fd, void *flags) {
    int done = call(fd, F_SETFD, flags);
    if (done == 0)
        mirror_cloexec(fd, ((uintptr_t)flags & FD_CLOEXEC) != 0);
    return done;
}

static int controlled(__typeof__(fcntl) *call, int fd, int command, void *argument) {
    switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
        return copied(fd, call(fd, command, argument));
    case F_GETFD:
    case F_DUPFD_QUERY:
        return call(fd, command, argument);
    case F_SETFD:
        return set_descriptor_flags(call, fd, argument);
    case F_SETFL:
        return set_flags(call, fd, argument);
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
        return lock_by_record(call, fd, command, argument);
    default:
        return call(where(fd), command, argument);
    }
}

/* Declares the argument, whose type depends; it is fetched as a pointer, as libc does itself. */
#define ARGUMENT_AFTER(last)              \
    va_list list;                         \
    va_start(list, last);                 \
    void *argument = va_arg(list, void *); \
    va_end(list);

EXPORT int fcntl(int fd, int command, ...) {
    ARGUMENT_AFTER(command)
    return controlled(REAL(fcntl), fd, command, argument);
}

EXPORT int fcntl64(int fd, int command, ...) {
    ARGUMENT_AFTER(command)
    return controlled(REAL(fcntl64), fd, command, argument);
}

/* -- ioctl -- */

static int clone_range(int fd, const struct file_clone_range *range) {
    if (range == NULL)
        return REAL(ioctl)(fd, FICLONERANGE, range);
    struct file_clone_range meant_here = *range;
    meant_here.src_fd = where((int)range->src_fd);
    return REAL(ioctl)(stand_in(fd), FICLONERANGE, &meant_here);
}

/* The kernel writes its answers into *range*; so the descriptors in there are exchanged for the call. */
static int dedupe_range(int fd, struct file_dedupe_range *range) {
    enum { MOST = 512 }; /* more do not fit into a page, which is the kernel's limit */
    if (range == NULL || range->dest_count > MOST)
        return REAL(ioctl)(where(fd), FIDEDUPERANGE, range);
    long long given[MOST];
    for (unsigned which = 0; which < range->dest_count; which++) {
        given[which] = range->info[which].dest_fd;
        range->info[which].dest_fd = stand_in((int)given[which]);
    }
    int done = REAL(ioctl)(stand_in(fd), FIDEDUPERANGE, range);
    for (unsigned which = 0; which < range->dest_count; which++)
        range->info[which].dest_fd = given[which];
    return done;
}

EXPORT int ioctl(int fd, unsigned long request, ...) {
    ARGUMENT_AFTER(request)
    int done;
    switch (request) {
    case FIOCLEX: /* as Python and others set it */
    case FIONCLEX:
        done = REAL(ioctl)(fd, request, argument);
        if (done == 0)
            mirror_cloexec(fd, request == FIOCLEX);
        return done;
    case FIONREAD:
        return REAL(ioctl)(fd, request, argument);
    case FICLONE:
        return REAL(ioctl)(where(fd), request, (void *)(intptr_t)where((int)(intptr_t)argument));
    case FICLONERANGE:
        return clone_range(fd, argument);
    case FIDEDUPERANGE:
        return dedupe_range(fd, argument);
    default: /* some count from the offset, or the end (FS_IOC_RESVSP) */
        return REAL(ioctl)(stand_in(fd), request, argument);
    }
}

EXPORT int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    return REAL(epoll_ctl)(epoll, operation, where(fd), event);
}
