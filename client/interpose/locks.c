/* Locks are the mount's: whoever runs without this library, or has another branch's copy of the content, must meet them. */
#include "shim.h"

EXPORT int flock(int fd, int operation) { return REAL(flock)(where(fd), operation); }

/* A shadow's offset does not move, and the mount learns of a new size only when it looks: so places that are told from the offset
 * or the end are counted here, from the start. False when they cannot be. */
static bool count_from_start(int fd, struct flock *lock) {
    struct stat found;
    off_t from = 0;
    if (lock->l_whence == SEEK_CUR)
        from = (off_t)KERNEL(lseek, fd, 0, SEEK_CUR);
    else if (lock->l_whence == SEEK_END)
        from = REAL(fstat)(fd, &found) == 0 ? found.st_size : -1;
    lock->l_whence = SEEK_SET;
    return from >= 0 && !__builtin_add_overflow(lock->l_start, from, &lock->l_start);
}

int lock_by_record(__typeof__(fcntl) *call, int fd, int command, struct flock *lock) {
    int shadow = where(fd), saved = errno;
    if (shadow == fd || lock == NULL)
        return call(fd, command, lock);
    struct flock counted = *lock;
    if (counted.l_whence != SEEK_SET && !count_from_start(fd, &counted)) {
        errno = saved;
        return call(fd, command, lock); /* which says what is wrong */
    }
    errno = saved;
    int done = call(shadow, command, &counted);
    if (done == 0 && (command == F_GETLK || command == F_OFD_GETLK)) {
        if (counted.l_type == F_UNLCK)
            lock->l_type = F_UNLCK;
        else
            *lock = counted;
    }
    return done;
}

static int locked(__typeof__(lockf64) *call, int fd, int command, off64_t length) {
    int shadow = where(fd), saved = errno;
    if (shadow != fd)
        KERNEL(lseek, shadow, KERNEL(lseek, fd, 0, SEEK_CUR), SEEK_SET); /* lockf counts from there */
    errno = saved;
    return call(shadow, command, length);
}

EXPORT int lockf(int fd, int command, off_t length) { return locked(REAL(lockf), fd, command, length); }

EXPORT int lockf64(int fd, int command, off64_t length) { return locked(REAL(lockf64), fd, command, length); }
