/* Opening by path. The real function first; then forward() looks at what came of it.
 *
 * mkstemp(3), tmpfile(3) and their kin stay with the mount: libc opens inside itself there, and what they make is mostly small
 * and soon gone, so that the exchange of descriptors would cost more than it saves. So does openat2(2), for which libc has no
 * function. */
#include "shim.h"

#include <stdarg.h>

static bool is_new(int flags) { return flags & O_TRUNC || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL); }

static bool has_mode(int flags) { return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE; }

/* Declares the mode, which is there only when the flags say so. */
#define MODE_AFTER(flags)             \
    mode_t mode = 0;                  \
    if (has_mode(flags)) {            \
        va_list list;                 \
        va_start(list, flags);        \
        mode = va_arg(list, mode_t);  \
        va_end(list);                 \
    }

EXPORT int open(const char *path, int flags, ...) {
    MODE_AFTER(flags)
    char link[LINK_SIZE];
    return forward(REAL(open)(translated(path, link), flags, mode), is_new(flags));
}

EXPORT int open64(const char *path, int flags, ...) {
    MODE_AFTER(flags)
    char link[LINK_SIZE];
    return forward(REAL(open64)(translated(path, link), flags, mode), is_new(flags));
}

EXPORT int openat(int directory, const char *path, int flags, ...) {
    MODE_AFTER(flags)
    char link[LINK_SIZE];
    return forward(REAL(openat)(directory, translated(path, link), flags, mode), is_new(flags));
}

EXPORT int openat64(int directory, const char *path, int flags, ...) {
    MODE_AFTER(flags)
    char link[LINK_SIZE];
    return forward(REAL(openat64)(directory, translated(path, link), flags, mode), is_new(flags));
}

EXPORT int __open_2(const char *path, int flags) {
    char link[LINK_SIZE];
    return forward(REAL(__open_2)(translated(path, link), flags), is_new(flags));
}

EXPORT int __open64_2(const char *path, int flags) {
    char link[LINK_SIZE];
    return forward(REAL(__open64_2)(translated(path, link), flags), is_new(flags));
}

EXPORT int __openat_2(int directory, const char *path, int flags) {
    char link[LINK_SIZE];
    return forward(REAL(__openat_2)(directory, translated(path, link), flags), is_new(flags));
}

EXPORT int __openat64_2(int directory, const char *path, int flags) {
    char link[LINK_SIZE];
    return forward(REAL(__openat64_2)(directory, translated(path, link), flags), is_new(flags));
}

EXPORT int creat(const char *path, mode_t mode) {
    char link[LINK_SIZE];
    return forward(REAL(creat)(translated(path, link), mode), true);
}

EXPORT int creat64(const char *path, mode_t mode) {
    char link[LINK_SIZE];
    return forward(REAL(creat64)(translated(path, link), mode), true);
}

/* A stream that has read and written nothing does not mind that its descriptor becomes another one at the same offset. */
static FILE *forwarded(FILE *stream, const char *mode) {
    if (stream != NULL)
        forward(fileno(stream), mode[0] == 'w');
    return stream;
}

EXPORT FILE *fopen(const char *path, const char *mode) {
    char link[LINK_SIZE];
    return forwarded(REAL(fopen)(translated(path, link), mode), mode);
}

EXPORT FILE *fopen64(const char *path, const char *mode) {
    char link[LINK_SIZE];
    return forwarded(REAL(fopen64)(translated(path, link), mode), mode);
}

/* Without a path libc opens the same file anew in another mode, by its link in /proc: that must be the mount's. */
static FILE *reopened(__typeof__(freopen) *call, const char *path, const char *mode, FILE *stream) {
    char link[LINK_SIZE];
    if (path == NULL && stream != NULL && fileno(stream) >= 0) {
        fflush(stream);
        take_back(fileno(stream));
    }
    return forwarded(call(translated(path, link), mode, stream), mode);
}

EXPORT FILE *freopen(const char *restrict path, const char *restrict mode, FILE *restrict stream) {
    return reopened(REAL(freopen), path, mode, stream);
}

EXPORT FILE *freopen64(const char *restrict path, const char *restrict mode, FILE *restrict stream) {
    return reopened(REAL(freopen64), path, mode, stream);
}
