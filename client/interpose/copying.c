/* copy_file_range(2) between two files of the mount, one of which is forwarded: to the kernel those lie in two file systems, to
 * the program in one. Then the mount copies, by the shadow of the one and at the offset that it has. */
#include "shim.h"

static off64_t place(int fd, const off64_t *offset) { return offset != NULL ? *offset : KERNEL(lseek, fd, 0, SEEK_CUR); }

static void move(int fd, off64_t *offset, off64_t at) {
    if (offset != NULL)
        *offset = at;
    else
        KERNEL(lseek, fd, at, SEEK_SET);
}

EXPORT ssize_t copy_file_range(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t length, unsigned flags) {
    int saved = errno;
    ssize_t done = REAL(copy_file_range)(in, in_offset, out, out_offset, length, flags);
    if (done >= 0 || errno != EXDEV)
        return done;
    int from = where(in), to = where(out);
    if ((from == in) == (to == out))
        return done;
    off64_t in_at = place(in, in_offset), out_at = place(out, out_offset);
    if (in_at < 0 || out_at < 0)
        return done;
    done = REAL(copy_file_range)(from, &in_at, to, &out_at, length, flags);
    if (done >= 0)
        errno = saved;
    if (done > 0) {
        move(in, in_offset, in_at);
        move(out, out_offset, out_at);
    }
    return done;
}
