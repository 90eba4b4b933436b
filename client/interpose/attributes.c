/* What is asked of or done to the file and not to its bytes goes to the mount's descriptor. Its fsync makes content, name and
 * attributes durable together. */
#include "shim.h"

#include <string.h>

EXPORT int fstat(int fd, struct stat *found) { return REAL(fstat)(where(fd), found); }

EXPORT int fstat64(int fd, struct stat64 *found) { return REAL(fstat64)(where(fd), found); }

EXPORT int __fxstat(int version, int fd, struct stat *found) { return REAL(__fxstat)(version, where(fd), found); }

EXPORT int __fxstat64(int version, int fd, struct stat64 *found) { return REAL(__fxstat64)(version, where(fd), found); }

EXPORT int fstatat(int fd, const char *restrict path, struct stat *restrict found, int flags) {
    char link[LINK_SIZE];
    return REAL(fstatat)(meant(fd, path, flags), translated(path, link), found, flags);
}

EXPORT int fstatat64(int fd, const char *restrict path, struct stat64 *restrict found, int flags) {
    char link[LINK_SIZE];
    return REAL(fstatat64)(meant(fd, path, flags), translated(path, link), found, flags);
}

EXPORT int __fxstatat(int version, int fd, const char *path, struct stat *found, int flags) {
    char link[LINK_SIZE];
    return REAL(__fxstatat)(version, meant(fd, path, flags), translated(path, link), found, flags);
}

EXPORT int __fxstatat64(int version, int fd, const char *path, struct stat64 *found, int flags) {
    char link[LINK_SIZE];
    return REAL(__fxstatat64)(version, meant(fd, path, flags), translated(path, link), found, flags);
}

EXPORT int statx(int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    char link[LINK_SIZE];
    return REAL(statx)(meant(fd, path, flags), translated(path, link), flags, mask, found);
}

/* From a setuid file, and from one with capabilities, a write takes that away: such writes are the mount's. */
EXPORT int fchmod(int fd, mode_t mode) {
    if (mode & (S_ISUID | S_ISGID))
        take_back(fd);
    return REAL(fchmod)(where(fd), mode);
}

EXPORT int fchown(int fd, uid_t user, gid_t group) { return REAL(fchown)(where(fd), user, group); }

EXPORT int fchownat(int fd, const char *path, uid_t user, gid_t group, int flags) {
    char link[LINK_SIZE];
    return REAL(fchownat)(meant(fd, path, flags), translated(path, link), user, group, flags);
}

EXPORT int futimens(int fd, const struct timespec times[2]) { return REAL(futimens)(where(fd), times); }

EXPORT int futimes(int fd, const struct timeval times[2]) { return REAL(futimes)(where(fd), times); }

EXPORT ssize_t fgetxattr(int fd, const char *name, void *value, size_t size) {
    return REAL(fgetxattr)(where(fd), name, value, size);
}

EXPORT int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags) {
    if (name != NULL && strcmp(name, "security.capability") == 0)
        take_back(fd);
    return REAL(fsetxattr)(where(fd), name, value, size, flags);
}

EXPORT ssize_t flistxattr(int fd, char *names, size_t size) { return REAL(flistxattr)(where(fd), names, size); }

EXPORT int fremovexattr(int fd, const char *name) { return REAL(fremovexattr)(where(fd), name); }

EXPORT int fsync(int fd) { return REAL(fsync)(where(fd)); }

EXPORT int fdatasync(int fd) { return REAL(fdatasync)(where(fd)); }

EXPORT int syncfs(int fd) { return REAL(syncfs)(where(fd)); }

EXPORT int fstatfs(int fd, struct statfs *found) { return REAL(fstatfs)(where(fd), found); }

EXPORT int fstatfs64(int fd, struct statfs64 *found) { return REAL(fstatfs64)(where(fd), found); }

EXPORT int fstatvfs(int fd, struct statvfs *found) { return REAL(fstatvfs)(where(fd), found); }

EXPORT int fstatvfs64(int fd, struct statvfs64 *found) { return REAL(fstatvfs64)(where(fd), found); }

EXPORT int name_to_handle_at(int fd, const char *path, struct file_handle *handle, int *mount, int flags) {
    char link[LINK_SIZE];
    return REAL(name_to_handle_at)(meant(fd, path, flags), translated(path, link), handle, mount, flags);
}
