/* What the files of the interposition library share. It is preloaded into unmodified programs, and gives them, for files of an
 * agentfs mount, a real descriptor of the file's content: reads and writes then never pass the daemon.
 *
 *   real.c         the functions of libc that stand behind ours
 *   settings.c     what the environment says; the process that this memory belongs to
 *   shadow.c       which descriptor of the mount belongs to which forwarded number
 *   conversation.c the socket over which descriptors arrive
 *   forward.c      whether a file that was just opened is worth it; the exchange of descriptors, and the way back
 *   trace.c        the lines that AGENTFS_INTERPOSE_TRACE asks for
 *   opens.c descriptors.c controls.c attributes.c locks.c copying.c bytes.c spawning.c paths.c   the interposed functions
 *   calls.c        syscall(2), which reaches all of them by number
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
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <spawn.h>
#include <unistd.h>
#include <utime.h>

#define EXPORT __attribute__((visibility("default")))

/* What older headers, or fortified ones, call and newer ones do not declare. */
extern int __open_2(const char *, int), __open64_2(const char *, int);
extern int __openat_2(int, const char *, int), __openat64_2(int, const char *, int);
extern int __fxstat(int, int, struct stat *), __fxstat64(int, int, struct stat64 *);
extern int __fxstatat(int, int, const char *, struct stat *, int), __fxstatat64(int, int, const char *, struct stat64 *, int);
extern int __xstat(int, const char *, struct stat *), __xstat64(int, const char *, struct stat64 *);
extern char *__realpath_chk(const char *, char *, size_t);
extern ssize_t __readlink_chk(const char *, char *, size_t, size_t);
extern ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);

/* real.c. A C library that allocates by mmap(2) meets ours while dlsym(3) looks for the others: so it comes first. */
#define INTERPOSED(each)                                                                                                        \
    each(mmap) each(mmap64)                                                                                                     \
    each(open) each(open64) each(openat) each(openat64) each(__open_2) each(__open64_2) each(__openat_2) each(__openat64_2)     \
    each(creat) each(creat64) each(fopen) each(fopen64) each(freopen) each(freopen64) each(fclose)                              \
    each(close) each(close_range) each(closefrom) each(dup) each(dup2) each(dup3) each(fcntl) each(fcntl64) each(ioctl)         \
    each(epoll_ctl) each(syscall) each(flock) each(lockf) each(lockf64)                                                         \
    each(copy_file_range) each(sendfile) each(sendfile64) each(splice) each(preadv2) each(preadv64v2) each(pwritev2)            \
    each(pwritev64v2) each(lseek) each(lseek64)                                                                                 \
    each(fallocate) each(fallocate64) each(posix_fallocate) each(posix_fallocate64)                                             \
    each(fstat) each(fstat64) each(__fxstat) each(__fxstat64) each(fstatat) each(fstatat64) each(__fxstatat)                    \
    each(__fxstatat64) each(statx) each(stat) each(stat64) each(__xstat) each(__xstat64)                                        \
    each(fchmod) each(chmod) each(fchmodat) each(fchown) each(chown) each(fchownat) each(futimens) each(futimes)                \
    each(utimensat) each(utimes) each(utime)                                                                                    \
    each(faccessat) each(access) each(euidaccess) each(truncate) each(truncate64)                                               \
    each(fgetxattr) each(fsetxattr) each(flistxattr) each(fremovexattr) each(getxattr) each(setxattr) each(listxattr)           \
    each(removexattr)                                                                                                           \
    each(fsync) each(fdatasync) each(syncfs) each(fstatfs) each(fstatfs64) each(fstatvfs) each(fstatvfs64) each(statfs)         \
    each(statfs64) each(statvfs) each(statvfs64)                                                                                \
    each(name_to_handle_at) each(inotify_add_watch) each(fexecve) each(linkat) each(readlink) each(readlinkat)                  \
    each(realpath) each(canonicalize_file_name)                                                                                 \
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
int stand_in(int fd);                  /* likewise, at the offset of fd; the kernel knows the size that the file has now */
int follow(int fd, int shadow);        /* the stand-in has been moved: so is fd; returns fd */
bool has_shadows(void);                /* false: this process has none at all */
bool shadow_put(int fd, int mount, bool cloexec, const struct object *object); /* makes a copy of *mount* the shadow of fd */
void shadow_drop(int fd);              /* fd is about to be closed */
int shadow_detach(int fd);             /* the number of the shadow, which belongs to the caller until shadow_end; or -1 */
void shadow_end(int fd);
void shadow_reattach(int fd);          /* nothing came of it */
void shadow_keep(int fd);              /* fd is the mount's descriptor as its shadow is: they stay a pair */
void shadow_fresh(int fd);             /* fd was just opened: whatever is remembered of that number is old */
void shadow_copy(int old, int fd);     /* fd was just made a duplicate of old */
void shadow_forget_from(int fd);       /* fd and all above were closed, with their shadows */
bool is_ours(int number);              /* a number that the program has not opened: a shadow, or our socket */
void yield_number(int number);         /* the program is about to put something of its own there */
bool identify(int fd, struct object *object); /* which file the kernel has there */
bool is_same(struct object one, struct object other);
void refresh(int fd);                  /* the kernel learns which size the mount's file has now */

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
/* fd is the mount's descriptor again, as if it had never been forwarded. To be called outside. */
void take_back(int fd);
/* The kernel is about to move bytes from one to the other: if both are of one file and one is forwarded, neither is any more. */
void before_moving(int from, int to);
/* The file that fd is of will be mapped: what this process has open of it must be the pages that are mapped. */
void before_mapping(int fd, bool shared);
/* Whether anybody has a record lock on the file. */
bool is_locked(int fd);

/* trace.c: *what* became of the file that *fd*, the mount's descriptor, is of. */
void trace(int fd, const char *what);

/* descriptors.c */
int copied(int old, int fd);             /* fd was just made a copy of old; returns it */
void mirror_cloexec(int fd, bool cloexec);

/* locks.c */
int lock_by_record(__typeof__(fcntl) *call, int fd, int command, struct flock *lock);

/* paths.c */
enum { LINK_SIZE = sizeof "/proc/self/fd/" + 12 };
/* *path*, or, when it is a name in /proc/self/fd or /dev of a forwarded descriptor, the same for its shadow, in *buffer*. */
const char *translated(const char *path, char buffer[LINK_SIZE]);
/* The file that (*fd*, *path*) means; an empty path with AT_EMPTY_PATH means fd itself. */
int meant(int fd, const char *path, int flags);

#endif
