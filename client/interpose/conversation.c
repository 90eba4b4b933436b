/* The socket over which the daemon sends descriptors: one per process, made when the first file is worth it. A file is named by
 * an ioctl on the mount's own descriptor, so that nothing but what the process has open can be asked for; the answer lies in the
 * socket when the ioctl returns. */
#include "shim.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

struct hello {
    char magic[8];
    uint32_t version, reserved;
    uint64_t cookie;
};
struct request {
    uint64_t cookie, ticket;
    uint32_t flags, version;
    struct object object;
};
struct parcel {
    uint64_t ticket;
    struct object object;
};
#define IOC_FORWARD _IOWR(0xAF, 2, struct request)
enum { VERSION = 1 };
_Static_assert(sizeof(struct hello) == 24 && sizeof(struct request) == 40 && sizeof(struct parcel) == 24, "no padding");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    enum { NOT_YET, OPEN, OFF } state; /* OFF: not again in this process */
    int socket;
    struct object identity; /* of the socket: its number may have become something else */
    uint64_t cookie, ticket;
} talk;

bool is_conversation(int number) { return talk.state == OPEN && talk.socket == number; }

void conversation_after_fork(void) { /* what comes over the parent's socket is the parent's */
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (talk.state == OPEN) {
        KERNEL(close, talk.socket);
        talk.state = NOT_YET;
    }
}

static bool connect_to(int socket, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = strrchr(path, '/') + 1;
    int directory = -1;
    if (strlen(path) < sizeof address.sun_path) {
        strcpy(address.sun_path, path);
    } else { /* too long for an address: by its directory */
        static char start[PATH_MAX]; /* not on the stack, which may be a signal handler's */
        memcpy(start, path, (size_t)(name - path));
        start[name - path] = '\0';
        directory = (int)KERNEL(openat, AT_FDCWD, start, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int length = snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory, name);
        if (directory < 0 || length < 0 || (size_t)length >= sizeof address.sun_path)
            return false;
    }
    bool done = KERNEL(connect, socket, &address, sizeof address) == 0;
    if (directory >= 0)
        KERNEL(close, directory);
    return done;
}

static bool say_hello(int socket) {
    struct hello hello = {.magic = {'A', 'G', 'E', 'N', 'T', 'F', 'S', 1}, .version = VERSION};
    if (KERNEL(getrandom, &hello.cookie, sizeof hello.cookie, 0) != sizeof hello.cookie || hello.cookie == 0)
        return false;
    talk.cookie = hello.cookie;
    return KERNEL(sendto, socket, &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0) == sizeof hello;
}

/* The socket gets a high number: the program's own shall be the lowest, as without us. */
static bool begin(void) {
    int socket = (int)KERNEL(socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0)
        return false;
    bool connected = connect_to(socket, settings.socket) && say_hello(socket);
    talk.socket = connected ? (int)KERNEL(fcntl, socket, F_DUPFD_CLOEXEC, settings.base - RESERVED) : -1;
    KERNEL(close, socket);
    if (talk.socket < 0 || talk.socket >= settings.base || !identify(talk.socket, &talk.identity)) {
        if (talk.socket >= 0)
            KERNEL(close, talk.socket);
        return false;
    }
    return true;
}

static bool is_there(void) {
    struct object now;
    if (talk.state == NOT_YET)
        talk.state = begin() ? OPEN : OFF;
    if (talk.state == OPEN && (!identify(talk.socket, &now) || now.dev != talk.identity.dev || now.ino != talk.identity.ino))
        talk.state = OFF;
    return talk.state == OPEN;
}

/* The next descriptor in the socket, and what it is for; -1 when there is none. */
static int receive(struct parcel *parcel) {
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec content = {parcel, sizeof *parcel};
    struct msghdr message = {.msg_iov = &content, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    long length = KERNEL(recvmsg, talk.socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = length < 0 ? NULL : CMSG_FIRSTHDR(&message);
    int descriptor;
    if (header == NULL || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return -1;
    if (header->cmsg_len < CMSG_LEN(sizeof descriptor))
        return -1;
    memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    if (length != sizeof *parcel)
        parcel->ticket = 0;
    return descriptor;
}

static int exchange(int mount, int flags, struct object *object) {
    struct request request = {.cookie = talk.cookie, .ticket = ++talk.ticket, .flags = (uint32_t)flags, .version = VERSION};
    if (KERNEL(ioctl, mount, IOC_FORWARD, &request) != 0) {
        if (errno == EPERM || errno == EPROTO)
            talk.state = OFF; /* the socket stays: its number is ours, and closing it here tells nobody anything */
        if (errno == ENOTCONN) { /* the daemon is another one now: next time from the beginning */
            KERNEL(close, talk.socket);
            talk.state = NOT_YET;
            errno = ENOTCONN;
        }
        return -1;
    }
    struct parcel parcel;
    int descriptor;
    while ((descriptor = receive(&parcel)) >= 0 && parcel.ticket != request.ticket)
        KERNEL(close, descriptor); /* of a call that a signal interrupted */
    *object = parcel.object;
    return descriptor;
}

int ask_for_content(int mount, int flags, struct object *object) {
    pthread_mutex_lock(&lock);
    errno = ENOTCONN;
    int descriptor = is_there() ? exchange(mount, flags, object) : -1;
    pthread_mutex_unlock(&lock);
    return descriptor;
}
