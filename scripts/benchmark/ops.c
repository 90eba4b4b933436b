/* Does one kind of file operation many times and prints "NANOSECONDS OPERATIONS": what all of them took together.
 *
 * Usage: ops OPERATION DIRECTORY COUNT [MILLISECONDS]. All COUNT files once, and again until that time is over. DIRECTORY is
 * the working directory, so that a name has one component. In C because a system call of two microseconds drowns in any
 * interpreter.
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CONTENT_BYTES = 1024, LARGE_BYTES = 1 << 20, FILES_PER_DIRECTORY = 1000, NAME_BYTES = 64 };

static char content[LARGE_BYTES];
static long seen;

static void fail(const char *what) {
    fprintf(stderr, "ops: %s: %s\n", what, strerror(errno));
    exit(1);
}

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* -- one pass of each operation; each returns the number of operations that it did */

static long stat_pass(const char *prefix, long count, int expected) {
    char name[NAME_BYTES];
    struct stat info;
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s%ld", prefix, i);
        int found = lstat(name, &info) == 0 ? 0 : errno;
        if (found != expected) {
            errno = found;
            fail(name);
        }
    }
    return count;
}

static long stat_all(long count) { return stat_pass("f", count, 0); }

static long stat_missing(long count) { return stat_pass("missing", count, ENOENT); }

static long open_read_close(long count) {
    char name[NAME_BYTES];
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "f%ld", i);
        int fd = open(name, O_RDONLY);
        if (fd < 0 || read(fd, content, CONTENT_BYTES) < 0 || close(fd) != 0) fail(name);
    }
    return count;
}

static long open_close(long count, int flags) {
    char name[NAME_BYTES];
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "f%ld", i);
        int fd = open(name, flags);
        if (fd < 0 || close(fd) != 0) fail(name);
    }
    return count;
}

static long open_to_read(long count) { return open_close(count, O_RDONLY); }

static long open_to_write(long count) { return open_close(count, O_WRONLY); }

static long rewrite_all(long count, size_t size) {
    char name[NAME_BYTES];
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "f%ld", i);
        int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || write(fd, content, size) != (ssize_t)size || close(fd) != 0) fail(name);
    }
    return count;
}

static long rewrite_small(long count) { return rewrite_all(count, CONTENT_BYTES); }

static long rewrite_large(long count) { return rewrite_all(count, LARGE_BYTES); }

static void write_file(const char *name, size_t size) {
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0 || write(fd, content, size) != (ssize_t)size || close(fd) != 0) fail(name);
}

static long create(long count) {
    char name[NAME_BYTES];
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "new%ld", i);
        write_file(name, CONTENT_BYTES);
    }
    return count;
}

static long unlink_all(long count) {
    char name[NAME_BYTES];
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "new%ld", i);
        if (unlink(name) != 0) fail(name);
    }
    return count;
}

static long scan(long count) {
    (void)count;
    long found = 0;
    struct stat info;
    struct dirent *entry;
    DIR *directory = opendir(".");
    if (directory == NULL) fail("opendir");
    while ((entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (fstatat(dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) fail(entry->d_name);
        found++;
    }
    closedir(directory);
    return found;
}

static int visit(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)path, (void)info, (void)where;
    if (kind == FTW_NS || kind == FTW_DNR) fail(path);
    seen++;
    return 0;
}

static long walk(long count) {
    (void)count;
    seen = 0;
    if (nftw(".", visit, 64, FTW_PHYS) != 0) fail("nftw");
    return seen;
}

/* The first write to each of COUNT files: what makes an overlay copy them up. */
static long first_write(long count) {
    char name[NAME_BYTES];
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "f%ld", i);
        int fd = open(name, O_WRONLY);
        if (fd < 0 || pwrite(fd, "x", 1, 0) != 1 || close(fd) != 0) fail(name);
    }
    return count;
}

/* COUNT small files, a thousand in each directory. */
static long fill(long count) {
    char name[NAME_BYTES];
    for (long i = 0; i < count; i++) {
        if (i % FILES_PER_DIRECTORY == 0) {
            snprintf(name, sizeof name, "d%ld", i / FILES_PER_DIRECTORY);
            if (mkdir(name, 0755) != 0) fail(name);
        }
        snprintf(name, sizeof name, "d%ld/f%ld", i / FILES_PER_DIRECTORY, i);
        write_file(name, 64);
    }
    return count;
}

static const struct operation {
    const char *name;
    long (*pass)(long count);
    int warm; /* one pass that is not counted goes before */
} operations[] = {
    {"stat", stat_all, 1},         {"stat-cold", stat_all, 0}, {"enoent", stat_missing, 1}, {"open", open_read_close, 1},
    {"create", create, 0},         {"unlink", unlink_all, 0},  {"scan", scan, 1},           {"walk", walk, 0},
    {"first-write", first_write, 0}, {"fill", fill, 0},
    {"open-close", open_to_read, 1}, {"open-write", open_to_write, 1}, {"rewrite", rewrite_small, 1}, {"rewrite-mib", rewrite_large, 1},
};

int main(int argc, char **argv) {
    if (argc < 4) {
        fputs("usage: ops OPERATION DIRECTORY COUNT [MILLISECONDS]\n", stderr);
        return 2;
    }
    long count = atol(argv[3]), done = 0;
    long long least_ns = argc > 4 ? atol(argv[4]) * 1000000LL : 0, begin, taken;
    if (chdir(argv[2]) != 0) fail(argv[2]);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (strcmp(operations[i].name, argv[1]) != 0) continue;
        if (operations[i].warm) operations[i].pass(count);
        begin = now_ns();
        do {
            done += operations[i].pass(count);
            taken = now_ns() - begin;
        } while (taken < least_ns);
        printf("%lld %ld\n", taken, done);
        return 0;
    }
    fprintf(stderr, "ops: no operation %s\n", argv[1]);
    return 2;
}
