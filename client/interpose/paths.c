/* The names that the kernel gives to descriptors: /proc/self/fd/N, /dev/fd/N, /dev/stdout and the like. Behind a forwarded number
 * they would lead to the object; the program means the file, as the shadow has it. */
#include "shim.h"

#include <string.h>

/* What is behind *prefix* in *text*, or NULL. */
static const char *after(const char *text, const char *prefix) {
    size_t length = strlen(prefix);
    return strncmp(text, prefix, length) == 0 ? text + length : NULL;
}

/* The whole of *text* as the number of a descriptor, or -1. */
static int number(const char *text) {
    int value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && value < MAX_FD; at++)
        value = value * 10 + (*at - '0');
    return at == text || *at != '\0' ? -1 : value;
}

/* What follows "/proc/PROCESS/fd/", when that process is this one. */
static const char *in_own_directory(const char *path) {
    static const char *const selves[] = {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"};
    for (size_t which = 0; which < sizeof selves / sizeof *selves; which++) {
        const char *rest = after(path, selves[which]);
        if (rest != NULL)
            return rest;
    }
    long process = 0;
    const char *at = after(path, "/proc/");
    if (at == NULL)
        return NULL;
    for (; *at >= '0' && *at <= '9' && process < INT_MAX; at++)
        process = process * 10 + (*at - '0');
    const char *rest = after(at, "/fd/");
    return rest != NULL && process == KERNEL(getpid, 0) ? rest : NULL;
}

static int descriptor_named(const char *path) {
    static const char *const standard[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    for (int fd = 0; fd < 3; fd++)
        if (strcmp(path, standard[fd]) == 0)
            return fd;
    const char *rest = in_own_directory(path);
    return rest == NULL ? -1 : number(rest);
}

const char *translated(const char *path, char buffer[LINK_SIZE]) {
    if (path == NULL || path[0] != '/' || (path[1] != 'p' && path[1] != 'd'))
        return path;
    int fd = descriptor_named(path), shadow = where(fd);
    if (shadow == fd)
        return path;
    snprintf(buffer, LINK_SIZE, "/proc/self/fd/%d", shadow);
    return buffer;
}

int meant(int fd, const char *path, int flags) {
    return flags & AT_EMPTY_PATH && (path == NULL || path[0] == '\0') ? where(fd) : fd;
}

EXPORT ssize_t readlink(const char *restrict path, char *restrict target, size_t size) {
    char link[LINK_SIZE];
    return REAL(readlink)(translated(path, link), target, size);
}

EXPORT ssize_t __readlink_chk(const char *path, char *target, size_t size, size_t room) {
    char link[LINK_SIZE];
    return REAL(__readlink_chk)(translated(path, link), target, size, room);
}

EXPORT ssize_t readlinkat(int directory, const char *restrict path, char *restrict target, size_t size) {
    char link[LINK_SIZE];
    return REAL(readlinkat)(directory, translated(path, link), target, size);
}

EXPORT ssize_t __readlinkat_chk(int directory, const char *path, char *target, size_t size, size_t room) {
    char link[LINK_SIZE];
    return REAL(__readlinkat_chk)(directory, translated(path, link), target, size, room);
}

EXPORT char *realpath(const char *restrict path, char *restrict resolved) {
    char link[LINK_SIZE];
    return REAL(realpath)(translated(path, link), resolved);
}

EXPORT char *__realpath_chk(const char *path, char *resolved, size_t room) {
    char link[LINK_SIZE];
    return REAL(__realpath_chk)(translated(path, link), resolved, room);
}

EXPORT char *canonicalize_file_name(const char *path) {
    char link[LINK_SIZE];
    return REAL(canonicalize_file_name)(translated(path, link));
}

/* A name for a file that is open: by its link in /proc, or by an empty path. */
EXPORT int linkat(int from, const char *path, int to, const char *name, int flags) {
    char link[LINK_SIZE];
    return REAL(linkat)(meant(from, path, flags), translated(path, link), to, name, flags);
}

/* -- functions that take a path, and no descriptor -- */

#define BY_PATH(name, parameters, arguments)             \
    EXPORT int name parameters {                         \
        char link[LINK_SIZE];                            \
        return REAL(name)arguments;                      \
    }

BY_PATH(stat, (const char *restrict path, struct stat *restrict found), (translated(path, link), found))
BY_PATH(stat64, (const char *restrict path, struct stat64 *restrict found), (translated(path, link), found))
BY_PATH(__xstat, (int version, const char *path, struct stat *found), (version, translated(path, link), found))
BY_PATH(__xstat64, (int version, const char *path, struct stat64 *found), (version, translated(path, link), found))
BY_PATH(statfs, (const char *path, struct statfs *found), (translated(path, link), found))
BY_PATH(statfs64, (const char *path, struct statfs64 *found), (translated(path, link), found))
BY_PATH(statvfs, (const char *restrict path, struct statvfs *restrict found), (translated(path, link), found))
BY_PATH(statvfs64, (const char *restrict path, struct statvfs64 *restrict found), (translated(path, link), found))
BY_PATH(access, (const char *path, int mode), (translated(path, link), mode))
BY_PATH(euidaccess, (const char *path, int mode), (translated(path, link), mode))
BY_PATH(chmod, (const char *path, mode_t mode), (translated(path, link), mode))
BY_PATH(chown, (const char *path, uid_t user, gid_t group), (translated(path, link), user, group))
BY_PATH(truncate, (const char *path, off_t length), (translated(path, link), length))
BY_PATH(truncate64, (const char *path, off64_t length), (translated(path, link), length))
BY_PATH(utime, (const char *path, const struct utimbuf *times), (translated(path, link), times))
BY_PATH(utimes, (const char *path, const struct timeval times[2]), (translated(path, link), times))
BY_PATH(removexattr, (const char *path, const char *name), (translated(path, link), name))
BY_PATH(inotify_add_watch, (int fd, const char *path, uint32_t mask), (fd, translated(path, link), mask))
BY_PATH(
    setxattr, (const char *path, const char *name, const void *value, size_t size, int flags),
    (translated(path, link), name, value, size, flags)
)
BY_PATH(
    faccessat, (int directory, const char *path, int mode, int flags),
    (meant(directory, path, flags), translated(path, link), mode, flags)
)
BY_PATH(
    fchmodat, (int directory, const char *path, mode_t mode, int flags),
    (meant(directory, path, flags), translated(path, link), mode, flags)
)
BY_PATH(
    utimensat, (int directory, const char *path, const struct timespec times[2], int flags),
    (meant(directory, path, flags), translated(path, link), times, flags)
)

EXPORT ssize_t getxattr(const char *path, const char *name, void *value, size_t size) {
    char link[LINK_SIZE];
    return REAL(getxattr)(translated(path, link), name, value, size);
}

EXPORT ssize_t listxattr(const char *path, char *names, size_t size) {
    char link[LINK_SIZE];
    return REAL(listxattr)(translated(path, link), names, size);
}
