/* What is asked of or done to the file and not to its bytes goes to the mount's descriptor. Its fsync makes content, name and
 * attributes durable together. */
#include "shim.h"

#include <linux/fs.h>
#include <stdarg.h>

EXPORT int fstat(int fd, struct stat *found) { return REAL(fstat)(where(fd), found); }

EXPORT int fstat64(int fd, struct stat64 *found) { return REAL(fstat64)(where(fd), found); }

EXPORT int __fxstat(int version, int fd, struct stat *found) { return REAL(__fxstat)(version, where(fd), found); }

EXPORT int __fxstat64(int version, int fd, struct stat64 *found) { return REAL(__fxstat64)(version, where(fd), found); }

/* The file that (*fd*, *path*) means; an empty path with AT_EMPTY_PATH means fd itself. */
static int meant(int fd, const char *path, int flags) {
    return flags & AT_EMPTY_PATH && (path == NULL || path[0] == '\0') ? where(fd) : fd;
}

EXPORT int fstatat(int fd, const char *restrict path, struct stat *restrict found, int flags) {
    return REAL(fstatat)(meant(fd, path, flags), path, found, flags);
}

EXPORT int fstatat64(int fd, const char *restrict path, struct stat64 *restrict found, int flags) {
    return REAL(fstatat64)(meant(fd, path, flags), path, found, flags);
}

EXPORT int __fxstatat(int version, int fd, const char *path, struct stat *found, int flags) {
    return REAL(__fxstatat)(version, meant(fd, path, flags), path, found, flags);
}

EXPORT int __fxstatat64(int version, int fd, const char *path, struct stat64 *found, int flags) {
    return REAL(__fxstatat64)(version, meant(fd, path, flags), path, found, flags);
}

EXPORT int statx(int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    return REAL(statx)(meant(fd, path, flags), path, flags, mask, found);
}

EXPORT int fchmod(int fd, mode_t mode) { return REAL(fchmod)(where(fd), mode); }

EXPORT int fchown(int fd, uid_t user, gid_t group) { return REAL(fchown)(where(fd), user, group); }

EXPORT int fchownat(int fd, const char *path, uid_t user, gid_t group, int flags) {
    return REAL(fchownat)(meant(fd, path, flags), path, user, group, flags);
}

EXPORT int futimens(int fd, const struct timespec times[2]) { return REAL(futimens)(where(fd), times); }

EXPORT int futimes(int fd, const struct timeval times[2]) { return REAL(futimes)(where(fd), times); }

EXPORT ssize_t fgetxattr(int fd, const char *name, void *value, size_t size) {
    return REAL(fgetxattr)(where(fd), name, value, size);
}

EXPORT int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags) {
    return REAL(fsetxattr)(where(fd), name, value, size, flags);
}

EXPORT ssize_t flistxattr(int fd, char *names, size_t size) { return REAL(flistxattr)(where(fd), names, size); }

EXPORT int fremovexattr(int fd, const char *name) { return REAL(fremovexattr)(where(fd), name); }

EXPORT int fsync(int fd) { return REAL(fsync)(where(fd)); }

EXPORT int fdatasync(int fd) { return REAL(fdatasync)(where(fd)); }

EXPORT int fstatfs(int fd, struct statfs *found) { return REAL(fstatfs)(where(fd), found); }

EXPORT int fstatfs64(int fd, struct statfs64 *found) { return REAL(fstatfs64)(where(fd), found); }

EXPORT int fstatvfs(int fd, struct statvfs *found) { return REAL(fstatvfs)(where(fd), found); }

EXPORT int fstatvfs64(int fd, struct statvfs64 *found) { return REAL(fstatvfs64)(where(fd), found); }

bool is_about_the_file(unsigned long request) {
    return request == FS_IOC_GETFLAGS || request == FS_IOC_SETFLAGS || request == FS_IOC_GETVERSION ||
           request == FS_IOC_FSGETXATTR || request == FS_IOC_FSSETXATTR;
}

/* libuv and others call the kernel for what older libcs lack. */
EXPORT long syscall(long number, ...) {
    long a[6];
    va_list list;
    va_start(list, number);
    for (int which = 0; which < 6; which++)
        a[which] = va_arg(list, long);
    va_end(list);
    if (number == SYS_statx)
        a[0] = meant((int)a[0], (const char *)a[1], (int)a[2]);
    else if (number == SYS_close_range)
        return close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
