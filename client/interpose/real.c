/* The functions of libc behind ours, found once. */
#include "shim.h"

#include <dlfcn.h>

struct real real;

void resolve(void) {
    int saved = errno;
#define FIND(name) real.name = (__typeof__(real.name))dlsym(RTLD_NEXT, #name);
    INTERPOSED(FIND)
#undef FIND
    errno = saved;
}
