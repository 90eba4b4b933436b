/* What copies, allocates and looks for holes. The mount does it, on the shadow: the object lies in a file system that may know
 * more or fewer kinds of allocation, and to which a file of the mount that is not forwarded is a stranger. */
#include "shim.h"

EXPORT ssize_t copy_file_range(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t length, unsigned flags) {
    int from = stand_in(in), to = stand_in(out);
    ssize_t done = REAL(copy_file_range)(from, in_offset, to, out_offset, length, flags);
    if (done > 0 && in_offset == NULL)
        follow(in, from);
    if (done > 0 && out_offset == NULL)
        follow(out, to);
    return done;
}

EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count) {
    before_moving(in, out);
    return REAL(sendfile)(out, in, offset, count);
}

EXPORT ssize_t sendfile64(int out, int in, off64_t *offset, size_t count) {
    before_moving(in, out);
    return REAL(sendfile64)(out, in, offset, count);
}

EXPORT ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t length, unsigned flags) {
    before_moving(in, out);
    return REAL(splice)(in, in_offset, out, out_offset, length, flags);
}

EXPORT int fallocate(int fd, int mode, off_t offset, off_t length) { return REAL(fallocate)(where(fd), mode, offset, length); }

EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
    return REAL(fallocate64)(where(fd), mode, offset, length);
}

EXPORT int posix_fallocate(int fd, off_t offset, off_t length) { return REAL(posix_fallocate)(where(fd), offset, length); }

EXPORT int posix_fallocate64(int fd, off64_t offset, off64_t length) {
    return REAL(posix_fallocate64)(where(fd), offset, length);
}

/* An offset may be too large for the object's file system only: then the descriptor is the mount's from here on. */
#define SEEK(name, offset_type)                                                           \
    EXPORT offset_type name(int fd, offset_type offset, int whence) {                     \
        if (whence == SEEK_DATA || whence == SEEK_HOLE) {                                 \
            int shadow = stand_in(fd);                                                    \
            offset_type found = REAL(name)(shadow, offset, whence);                       \
            return found < 0 ? found : (follow(fd, shadow), found);                       \
        }                                                                                 \
        offset_type found = REAL(name)(fd, offset, whence);                               \
        if (found >= 0 || errno != EINVAL || where(fd) == fd)                             \
            return found;                                                                 \
        take_back(fd);                                                                    \
        return REAL(name)(fd, offset, whence);                                            \
    }

SEEK(lseek, off_t)
SEEK(lseek64, off64_t)
