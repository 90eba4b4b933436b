/* What the environment says, and whose memory this is.
 *
 * AGENTFS_INTERPOSE=1:BASE:MIN_READ_BYTES:SOCKET, as `agentfsd run --interpose` sets it; anything else turns the library off.
 * A vfork child runs in its parent's memory with descriptors of its own: it must not write the table of shadows. fork's child has
 * its own copy, and says so through its handler. */
#include "shim.h"

#include <pthread.h>
#include <string.h>

struct settings settings;
__thread volatile bool inside;

static pid_t owner;
static char socket_path[PATH_MAX], trace_path[PATH_MAX];

bool is_owner(void) { return KERNEL(getpid, 0) == owner; }

static void after_fork(void) {
    int saved = errno;
    owner = (pid_t)KERNEL(getpid, 0);
    conversation_after_fork();
    errno = saved;
}

/* The number at *text, which it moves behind the colon after it. */
static bool number_before_colon(const char **text, uint64_t *value) {
    const char *at = *text;
    *value = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(*value, (uint64_t)10, value) || __builtin_add_overflow(*value, (uint64_t)(*at - '0'), value))
            return false;
    if (at == *text || *at != ':')
        return false;
    *text = at + 1;
    return true;
}

static const char *kept(char *place, const char *value) { /* the program may change its environment */
    size_t length = strlen(value);
    return length < PATH_MAX ? memcpy(place, value, length + 1) : NULL;
}

__attribute__((constructor)) static void begin(void) {
    resolve();
    const char *text = secure_getenv("AGENTFS_INTERPOSE"), *trace = secure_getenv("AGENTFS_INTERPOSE_TRACE");
    uint64_t version, base;
    if (text == NULL || !number_before_colon(&text, &version) || version != 1)
        return;
    if (!number_before_colon(&text, &base) || !number_before_colon(&text, &settings.min_read_size))
        return;
    if (base < 64 || base > INT_MAX / 2 || text[0] != '/' || (settings.socket = kept(socket_path, text)) == NULL)
        return;
    if (pthread_atfork(NULL, NULL, after_fork) != 0)
        return;
    settings.trace = trace != NULL && trace[0] == '/' ? kept(trace_path, trace) : NULL;
    owner = (pid_t)KERNEL(getpid, 0);
    settings.limit = base - RESERVED < MAX_FD ? (int)base - RESERVED : MAX_FD;
    settings.base = (int)base;
}
