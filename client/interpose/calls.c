/* syscall(2): libuv, Rust's rustix and others call the kernel by number for what libcs lacked once. The same functions as ours. */
#include "shim.h"

#include <stdarg.h>

/* The whole call where it is more than one on another descriptor; false for any other number. */
static bool is_whole(long number, const long a[6], long *result) {
    switch (number) {
    case SYS_close:
        return *result = close((int)a[0]), true;
    case SYS_close_range:
        return *result = close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]), true;
    case SYS_dup:
        return *result = dup((int)a[0]), true;
    case SYS_dup3:
        return *result = dup3((int)a[0], (int)a[1], (int)a[2]), true;
    case SYS_fcntl:
        return *result = fcntl((int)a[0], (int)a[1], (void *)a[2]), true;
    case SYS_ioctl:
        return *result = ioctl((int)a[0], (unsigned long)a[1], (void *)a[2]), true;
    case SYS_copy_file_range:
        *result = copy_file_range((int)a[0], (off64_t *)a[1], (int)a[2], (off64_t *)a[3], (size_t)a[4], (unsigned)a[5]);
        return true;
    default:
        return false;
    }
}

/* Which of the arguments is a descriptor whose file is meant; or -1. */
static int about_the_file(long number) {
    switch (number) {
    case SYS_fallocate:
    case SYS_fstat:
    case SYS_fchmod:
    case SYS_fchown:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_syncfs:
    case SYS_flock:
    case SYS_fstatfs:
    case SYS_fgetxattr:
    case SYS_fsetxattr:
    case SYS_flistxattr:
    case SYS_fremovexattr:
        return 0;
    case SYS_epoll_ctl:
        return 2;
    default:
        return -1;
    }
}

EXPORT long syscall(long number, ...) {
    long a[6], result;
    va_list list;
    va_start(list, number);
    for (int which = 0; which < 6; which++)
        a[which] = va_arg(list, long);
    va_end(list);
    if (is_whole(number, a, &result))
        return result;
    int which = about_the_file(number);
    if (which >= 0)
        a[which] = where((int)a[which]);
    else if (number == SYS_statx)
        a[0] = meant((int)a[0], (const char *)a[1], (int)a[2]);
    else if (number == SYS_newfstatat)
        a[0] = meant((int)a[0], (const char *)a[1], (int)a[3]);
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
