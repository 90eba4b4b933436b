/* Writes or reads a file from beginning to end in equal blocks and prints how many nanoseconds that took.
 *
 * Usage: blocks write|read FILE BLOCK_BYTES BYTES. "-" for FILE: what standard input is open on. What is written to a name is
 * emptied first. Opening and closing do not count.
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what) {
    fprintf(stderr, "blocks: %s: %s\n", what, strerror(errno));
    exit(1);
}

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fputs("usage: blocks write|read FILE BLOCK_BYTES BYTES\n", stderr);
        return 2;
    }
    int writes = strcmp(argv[1], "write") == 0;
    size_t block = strtoul(argv[3], NULL, 10);
    long long left = atoll(argv[4]);
    char *content = malloc(block);
    int fd = strcmp(argv[2], "-") == 0 ? 0 : open(argv[2], writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0644);
    if (fd < 0 || content == NULL) fail(argv[2]);
    memset(content, 'x', block);
    long long begin = now_ns();
    for (; left > 0; left -= block) {
        errno = EIO; /* for a file that is shorter */
        if ((writes ? write(fd, content, block) : read(fd, content, block)) != (ssize_t)block) fail(argv[1]);
    }
    long long taken = now_ns() - begin;
    if (close(fd) != 0) fail("close");
    printf("%lld\n", taken);
    return 0;
}
