/* posix_spawn(3) does what its list says inside libc: a copy of a descriptor there needs a line for its shadow too. (fork, vfork
 * and exec need nothing.) */
#include "shim.h"

static int shadow_now(int fd) {
    int shadow = where(fd);
    return shadow == fd ? -1 : shadow;
}

/* Whoever has the number fd in the new process, it is not the present one: closing what is not open does no harm there. */
static void close_shadow(posix_spawn_file_actions_t *actions, int fd) {
    int shadow = shadow_now(fd);
    if (shadow >= 0)
        REAL(posix_spawn_file_actions_addclose)(actions, shadow);
}

EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int old, int fd) {
    int result = REAL(posix_spawn_file_actions_adddup2)(actions, old, fd), shadow = shadow_now(old);
    if (result != 0 || (shadow >= 0 && fd >= settings.limit))
        return result;
    if (shadow < 0)
        close_shadow(actions, fd);
    else
        REAL(posix_spawn_file_actions_adddup2)(actions, shadow, settings.base + fd);
    return 0;
}

EXPORT int posix_spawn_file_actions_addclose(posix_spawn_file_actions_t *actions, int fd) {
    int result = REAL(posix_spawn_file_actions_addclose)(actions, fd);
    if (result == 0)
        close_shadow(actions, fd);
    return result;
}

EXPORT int posix_spawn_file_actions_addopen(
    posix_spawn_file_actions_t *restrict actions, int fd, const char *restrict path, int flags, mode_t mode
) {
    int result = REAL(posix_spawn_file_actions_addopen)(actions, fd, path, flags, mode);
    if (result == 0)
        close_shadow(actions, fd);
    return result;
}

EXPORT int fexecve(int fd, char *const arguments[], char *const environment[]) {
    return REAL(fexecve)(where(fd), arguments, environment);
}
