/* Reading, writing and mapping, as far as the kernel's own calls on the object would not do the same as on the mount. */
#include "shim.h"

/* Flags of one call (RWF_NOWAIT, RWF_DONTCACHE, RWF_ATOMIC, ...) are known to some file systems only; and the mount makes durable
 * what the object alone cannot. */
#define FLAGGED(name, offset_type)                                                                            \
    EXPORT ssize_t name(int fd, const struct iovec *parts, int count, offset_type offset, int flags) {        \
        int meant_here = flags == 0 ? fd : stand_in(fd);                                                      \
        ssize_t done = REAL(name)(meant_here, parts, count, offset, flags);                                   \
        if (done > 0 && offset == -1)                                                                         \
            follow(fd, meant_here);                                                                           \
        return done;                                                                                          \
    }

FLAGGED(preadv2, off_t)
FLAGGED(preadv64v2, off64_t)
FLAGGED(pwritev2, off_t)
FLAGGED(pwritev64v2, off64_t)

static void before(int flags, int fd) {
    if (!(flags & MAP_ANONYMOUS) && settings.base != 0)
        before_mapping(fd, (flags & MAP_TYPE) != MAP_PRIVATE);
}

EXPORT void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    before(flags, fd);
    return REAL(mmap)(address, length, protection, flags, fd, offset);
}

EXPORT void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset) {
    before(flags, fd);
    return REAL(mmap64)(address, length, protection, flags, fd, offset);
}
