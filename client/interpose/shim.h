/* What the files of the interposition library share. It is preloaded into unmodified programs, and gives them, for files of an
 * agentfs mount, a real descriptor of the file's content: reads and writes then never pass the daemon.
 *
 *   real.c         the functions of libc that stand behind ours
 *   settings.c     what the environment says; the process that this memory belongs to
 *   shadow.c       which descriptor of the mount belongs to which forwarded number
 *   conversation.c the socket over which descriptors arrive
 *   forward.c      whether a file that was just opened is worth it; the exchange of descriptors
 *   opens.c descriptors.c attributes.c locks.c copying.c spawning.c paths.c   the interposed functions
 *
 * The real open comes first, on the mount: permissions, O_EXCL, umask and events are the kernel's and the daemon's. The mount's
 * descriptor lives on at number base + fd, as the *shadow* of fd: what is about the file and not its bytes goes there. Since it
 * is found by its number and inherited under the same conditions, fork and exec need no bookkeeping.
 *
 * Rules for everything here: no allocation; errno is what the real call left; on any doubt, the real call alone. */
#ifndef AGENTFS_SHIM_H
#define AGENTFS_SHIM_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <spawn.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* What older headers, or fortified ones, call and newer ones do not declare. */
extern int __open_2(const char *, int), __open64_2(const char *, int);
extern int __openat_2(int, const char *, int), __openat64_2(int, const char *, int);
extern int __fxstat(int, int, struct stat *), __fxstat64(int, int, struct stat64 *);
extern int __fxstatat(int, int, const char *, struct stat *, int), __fxstatat64(int, int, const char *, struct stat64 *, int);
extern char *__realpath_chk(const char *, char *, size_t);
extern ssize_t __readlink_chk(const char *, char *, size_t, size_t);
extern ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);

/* real.c */
#define INTERPOSED(each)                                                                                                        \
    each(open) each(open64) each(openat) each(openat64) each(__open_2) each(__open64_2) each(__openat_2) each(__openat64_2)     \
    each(creat) each(creat64) each(fopen) each(fopen64) each(freopen) each(freopen64) each(fclose)                              \
    each(close) each(close_range) each(closefrom) each(dup) each(dup2) each(dup3) each(fcntl) each(fcntl64) each(ioctl)         \
    each(syscall) each(flock) each(lockf) each(lockf64) each(copy_file_range)                                                   \
    each(fstat) each(fstat64) each(__fxstat) each(__fxstat64) each(fstatat) each(fstatat64) each(__fxstatat) each(__fxstatat64) \
    each(statx) each(fchmod) each(fchown) each(fchownat) each(futimens) each(futimes)                                           \
    each(fgetxattr) each(fsetxattr) each(flistxattr) each(fremovexattr) each(fsync) each(fdatasync)                             \
    each(fstatfs) each(fstatfs64) each(fstatvfs) each(fstatvfs64) each(fexecve) each(linkat)                                    \
    each(readlink) each(readlinkat) each(realpath) each(canonicalize_file_name)                                                 \
    each(__readlink_chk) each(__readlinkat_chk) each(__realpath_chk)                                                            \
    each(posix_spawn_file_actions_adddup2) each(posix_spawn_file_actions_addclose) each(posix_spawn_file_actions_addopen)

struct real {
#define MEMBER(name) __typeof__(name) *name;
    INTERPOSED(MEMBER)
#undef MEMBER
};
extern struct real real;
void resolve(void);

/* The function of libc; other libraries' constructors may call us before ours has run. */
#define REAL(name) (__builtin_expect(real.name != NULL, 1) ? real.name : (resolve(), real.name))
/* A system call of our own: no cancellation point, and never one of the functions that we stand in front of. */
#define KERNEL(name, ...) REAL(syscall)(SYS_##name, __VA_ARGS__)

/* settings.c */
enum { RESERVED = 8, MAX_FD = 4096 };
struct settings {
    int base;               /* the shadow of fd has the number base + fd; 0: the library does nothing */
    int limit;              /* numbers from here on are not forwarded; from base - RESERVED on numbers are ours */
    uint64_t min_read_size; /* files of this many bytes are forwarded when they are opened for reading only */
    const char *socket;
    const char *trace;      /* AGENTFS_INTERPOSE_TRACE: a file that gets a line for each file that was asked for; or NULL */
};
extern struct settings settings;
bool is_owner(void);   /* false in a child that shares or copies this memory without having run fork's handlers */

/* True unless this thread is inside already, as a signal handler may be: then it does the real call only. */
extern __thread volatile bool inside __attribute__((tls_model("initial-exec")));
static inline bool enter(void) {
    if (settings.base == 0 || inside)
        return false;
    inside = true;
    return true;
}
static inline void leave(void) { inside = false; }

/* shadow.c */
struct object {
    uint64_t dev, ino;
};
int shadow_of(int fd);                 /* its number, or -1 */
int where(int fd);                     /* what knows the file's attributes: the shadow, or fd. To be called outside. */
bool shadow_put(int fd, int mount, bool cloexec, const struct object *object); /* makes a copy of *mount* the shadow of fd */
void shadow_drop(int fd);              /* fd is about to be closed */
int shadow_detach(int fd);             /* the number of the shadow, which belongs to the caller until shadow_end; or -1 */
void shadow_end(int fd);
void shadow_reattach(int fd);          /* nothing came of it */
void shadow_fresh(int fd);             /* fd was just opened: whatever is remembered of that number is old */
void shadow_copy(int old, int fd);     /* fd was just made a duplicate of old */
void shadow_forget_from(int fd);       /* fd and all above were closed, with their shadows */
bool is_ours(int number);              /* a number that the program has not opened: a shadow, or our socket */
void yield_number(int number);         /* the program is about to put something of its own there */
bool identify(int fd, struct object *object); /* which file the kernel has there */

/* conversation.c */
/* A descriptor of the content of the file that *mount* has open, or -1; *flags* as F_GETFL has them. errno says why not. */
int ask_for_content(int mount, int flags, struct object *object);
bool is_conversation(int number);
void conversation_after_fork(void);
#define IOC_OBJECT _IOR(0xAF, 3, struct object)

/* forward.c */
/* fd was just opened, by an open that made or emptied the file if *is_new*; returns it. Does nothing where nothing is to be
 * gained. To be called outside. */
int forward(int fd, bool is_new);

/* locks.c, attributes.c */
int lock_by_record(__typeof__(fcntl) *call, int fd, int command, struct flock *lock);
bool is_about_the_file(unsigned long request); /* an ioctl that leaves the bytes alone */

/* paths.c */
enum { LINK_SIZE = sizeof "/proc/self/fd/" + 12 };
/* *path*, or, when it is a name in /proc/self/fd or /dev of a forwarded descriptor, the same for its shadow, in *buffer*. */
const char *translated(const char *path, char buffer[LINK_SIZE]);

#endif
