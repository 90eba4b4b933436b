/* What AGENTFS_INTERPOSE_TRACE asks for: a line for each file of a mount that a program has opened, "WORD PROCESS PROGRAM PATH".
 *
 * WORD is "forwarded"; or why the mount serves it: what this library thinks (forward.c), such as "small", or the name of the error
 * with which the daemon declined, such as EFBIG. */
#include "shim.h"

/* The name of this process's program. */
static void program(char name[32]) {
    int comm = (int)KERNEL(openat, AT_FDCWD, "/proc/self/comm", O_RDONLY | O_CLOEXEC, 0);
    long got = comm < 0 ? -1 : KERNEL(read, comm, name, 31);
    if (comm >= 0)
        KERNEL(close, comm);
    if (got > 0)
        name[got - 1] = '\0'; /* it ends with a newline */
}

void trace(int fd, const char *what) {
    char line[PATH_MAX + 128], link[LINK_SIZE], path[PATH_MAX], name[32] = "?";
    int file = (int)KERNEL(openat, AT_FDCWD, settings.trace, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = KERNEL(readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = '\0';
    program(name);
    int size = snprintf(line, sizeof line, "%s %d %s %s\n", what, getpid(), name, path);
    KERNEL(write, file, line, (size_t)size < sizeof line ? (size_t)size : sizeof line);
    KERNEL(close, file);
}
