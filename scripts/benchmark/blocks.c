/* Writes or reads two files of the same size from beginning to end in equal blocks, in turns of two megabytes, and prints how
 * often the first one's throughput is the second one's: the median of the turns, so that it does not matter which of the two was
 * interrupted by something else.
 *
 * Usage: blocks write|read FILE FILE BLOCK_BYTES BYTES. "@N" for a FILE: descriptor N. What is written to a name is emptied first.
 * Opening and closing do not count.
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

enum { TURN_BYTES = 2 << 20 };

static void fail(const char *what) {
    fprintf(stderr, "blocks: %s: %s\n", what, strerror(errno));
    exit(1);
}

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long transfer(int fd, int writes, char *content, size_t block, long long bytes) {
    long long begin = now_ns();
    for (; bytes > 0; bytes -= block) {
        errno = EIO; /* for a file that is shorter */
        if ((writes ? write(fd, content, block) : read(fd, content, block)) != (ssize_t)block) fail(writes ? "write" : "read");
    }
    return now_ns() - begin;
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fputs("usage: blocks write|read FILE FILE BLOCK_BYTES BYTES\n", stderr);
        return 2;
    }
    int writes = strcmp(argv[1], "write") == 0, files[2];
    size_t block = strtoul(argv[4], NULL, 10);
    long long size = atoll(argv[5]), turns = (size + TURN_BYTES - 1) / TURN_BYTES, taken[2];
    char *content = malloc(block);
    double *shares = malloc(turns * sizeof *shares);
    if (content == NULL || shares == NULL || turns == 0) fail("malloc");
    memset(content, 'x', block);
    for (int i = 0; i < 2; i++) {
        const char *name = argv[2 + i];
        files[i] = name[0] == '@' ? atoi(name + 1) : open(name, writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0644);
        if (files[i] < 0) fail(name);
    }
    for (long long turn = 0; turn < turns; turn++) {
        long long left = size - turn * TURN_BYTES, bytes = left < TURN_BYTES ? left : TURN_BYTES;
        for (int i = 0; i < 2; i++) {
            int which = (i + turn) % 2; /* another one is the first in each turn */
            taken[which] = transfer(files[which], writes, content, block, bytes);
        }
        shares[turn] = (double)taken[1] / taken[0];
    }
    qsort(shares, turns, sizeof *shares, compare);
    printf("%f\n", shares[turns / 2]);
    return 0;
}
