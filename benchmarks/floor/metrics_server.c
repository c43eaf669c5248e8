/* A model server's metrics page, at the least cost. metrics_server CPU FILE
 *
 * Every request is answered with the page in FILE, in which each run of ten zeros is replaced by the number of the
 * answer: a page that never changes would be cheaper to read than a real one. Prints the port it listens on, then
 * serves until it is killed or its parent is gone. One thread, level-triggered epoll, kept-alive connections. */
#include "listening.h"
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { MAX_BYTES = 4 * 1024 * 1024, MAX_MARKS = 4096, HEAD_BYTES = 256, MARK_DIGITS = 10 };

static char answer[HEAD_BYTES + MAX_BYTES];
static size_t answer_bytes;
static char *marks[MAX_MARKS];
static int mark_count;
static unsigned long answers;

static void load(const char *path) {
    static char body[MAX_BYTES];
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail(path);
    size_t size = fread(body, 1, MAX_BYTES, file);
    if (ferror(file) || !feof(file)) fail("the page is too large");
    fclose(file);
    int head = snprintf(answer, HEAD_BYTES,
                        "HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
                        "content-length: %zu\r\ncontent-type: text/plain; version=1.0.0; charset=utf-8\r\n\r\n",
                        size);
    memcpy(answer + head, body, size);
    answer_bytes = (size_t)head + size;
    for (char *at = answer + head, *end = answer + answer_bytes; at + MARK_DIGITS <= end; at++)
        if (memcmp(at, "0000000000", MARK_DIGITS) == 0 && mark_count < MAX_MARKS) {
            marks[mark_count++] = at;
            at += MARK_DIGITS - 1;
        }
}

static void renew(void) {
    char number[MARK_DIGITS + 1];
    snprintf(number, sizeof number, "%010lu", ++answers % 10000000000UL);
    for (int i = 0; i < mark_count; i++) memcpy(marks[i], number, MARK_DIGITS);
}

static void serve(int fd) {
    char request[4096];
    ssize_t got = read(fd, request, sizeof request);
    if (got < 4 || memcmp(request + got - 4, "\r\n\r\n", 4) != 0) {
        close(fd);
        return;
    }
    renew();
    if (send(fd, answer, answer_bytes, MSG_NOSIGNAL) != (ssize_t)answer_bytes) close(fd);
}

static void welcome(int listener, int poller) {
    int fd = accept(listener, NULL, NULL), on = 1;
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "metrics_server CPU FILE\n");
        return 2;
    }
    pin(argument(argc, argv, 1, 0));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    load(argv[2]);
    int listener = listen_on_loopback(4096), poller = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[64];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(poller, events, 64, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listener)
                welcome(listener, poller);
            else
                serve(events[i].data.fd);
        }
    }
}
