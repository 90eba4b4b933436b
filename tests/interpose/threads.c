/* Many threads that open, write, look, duplicate, lock and close at once, each in files of its own and in one that all share;
 * two that fork and exec meanwhile; and an alarm whose handler opens files in whatever thread it interrupts. Says "ok" when each
 * descriptor was always the file that its thread had opened. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 6, ROUNDS = 60, SPAWNS = 15 };
extern char **environ;

#define CHECK(what)                                                                                                             \
    do {                                                                                                                        \
        if (!(what)) {                                                                                                          \
            printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno));                                                      \
            exit(1);                                                                                                            \
        }                                                                                                                       \
    } while (0)

static void on_alarm(int number) {
    int saved = errno, fd = open("alarm", O_WRONLY | O_CREAT | O_APPEND, 0644);
    (void)number;
    if (fd >= 0) {
        struct stat found;
        if (write(fd, "!", 1) != 1 || fstat(fd, &found) != 0)
            abort();
        close(fd);
    }
    errno = saved;
}

static int is_file(int fd, const char *path) {
    struct stat one, other;
    return fstat(fd, &one) == 0 && stat(path, &other) == 0 && one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

static void *work(void *argument) {
    long me = (long)argument;
    for (int round = 0; round < ROUNDS; round++) {
        char path[32], line[32], back[32] = "";
        snprintf(path, sizeof path, "t%ld-%d", me, round % 7);
        int length = snprintf(line, sizeof line, "thread %ld round %d", me, round);
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | (round % 2 ? O_CLOEXEC : 0), 0644);
        CHECK(fd >= 0);
        CHECK(write(fd, line, (size_t)length) == length);
        CHECK(is_file(fd, path));
        CHECK(((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) == (round % 2));
        int copy = dup(fd), high = fcntl(fd, F_DUPFD_CLOEXEC, 60);
        CHECK(copy >= 0 && high >= 60);
        CHECK(close(fd) == 0);
        CHECK(is_file(copy, path) && is_file(high, path));
        CHECK(flock(high, LOCK_EX | LOCK_NB) == 0);
        CHECK(close(copy) == 0 && flock(high, LOCK_UN) == 0); /* a spawned shell may have inherited it */
        CHECK(pread(high, back, sizeof back, 0) == length && memcmp(back, line, (size_t)length) == 0);
        CHECK(close(high) == 0);
        FILE *shared = fopen("shared", "a");
        CHECK(shared != NULL);
        CHECK(round == 0 || lseek(fileno(shared), 0, SEEK_CUR) > 0); /* it goes to the end at once */
        CHECK(fprintf(shared, "%ld %d\n", me, round) > 0);
        CHECK(is_file(fileno(shared), "shared"));
        CHECK(fclose(shared) == 0);
        int small = open("/etc/hostname", O_RDONLY);
        CHECK(small < 0 || (!is_file(small, "shared") && close(small) == 0));
    }
    return NULL;
}

static void *spawn(void *argument) {
    char path[32], script[64];
    for (int round = 0; round < SPAWNS; round++) {
        snprintf(path, sizeof path, "s%ld-%d", (long)argument, round);
        snprintf(script, sizeof script, "printf 1; printf 2 >> %s", path);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0644), status;
        char *arguments[] = {"sh", "-c", script, NULL};
        pid_t child;
        CHECK(fd >= 0);
        if (round % 2) {
            posix_spawn_file_actions_t actions;
            posix_spawn_file_actions_init(&actions);
            CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
            CHECK(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ) == 0);
            posix_spawn_file_actions_destroy(&actions);
        } else if ((child = vfork()) == 0) {
            dup2(fd, 1);
            close_range(3, ~0U, 0);
            execv("/bin/sh", arguments);
            _exit(127);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        struct stat found;
        CHECK(fstat(fd, &found) == 0 && found.st_size == 2);
        CHECK(is_file(fd, path));
        CHECK(close(fd) == 0);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS + 2];
    struct itimerval every = {{0, 3000}, {0, 3000}};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    for (long number = 0; number < THREADS + 2; number++)
        CHECK(pthread_create(&threads[number], NULL, number < THREADS ? work : spawn, (void *)number) == 0);
    for (int number = 0; number < THREADS + 2; number++)
        pthread_join(threads[number], NULL);
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, NULL);
    int next = open("/dev/null", O_RDONLY);
    CHECK(next == 3); /* nothing was left open below */
    puts("ok");
    return 0;
}
