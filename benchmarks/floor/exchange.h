/* A parent sends one message to each of its children, each child echoes it, the parent reads all the echoes.
 *
 * The first WARM_UP_COUNT exchanges are not counted: they pay for page faults and a cold cache. */
#ifndef HOTBAY_EXCHANGE_H
#define HOTBAY_EXCHANGE_H

#include "measure.h"
#include <signal.h>
#include <sys/wait.h>

enum { WARM_UP_COUNT = 1000, MAX_CHILDREN = 8 };

/* The two ends of one child's link: the parent writes `to` and reads `from`; the child the other way round. */
typedef struct {
    int to, from;
    pid_t pid;
} child_link;

static void echo_until_end(int in, int out) {
    char buffer[MESSAGE_BYTES];
    while (read_whole(in, buffer, sizeof buffer)) write_whole(out, buffer, sizeof buffer);
    _exit(0);
}

static void exchange(const child_link *links, int children, int count, double *times_us) {
    char buffer[MESSAGE_BYTES];
    memset(buffer, 'x', sizeof buffer);
    for (int i = -WARM_UP_COUNT; i < count; i++) {
        double begun_us = now_us();
        for (int c = 0; c < children; c++) write_whole(links[c].to, buffer, sizeof buffer);
        for (int c = 0; c < children; c++)
            if (!read_whole(links[c].from, buffer, sizeof buffer)) fail("a child ended early");
        if (i >= 0) times_us[i] = now_us() - begun_us;
    }
}

/* `open_link` makes a link and forks the child that serves it. */
static int run_exchange(const char *name, int children, child_link (*open_link)(void), int argc, char **argv) {
    int count = argument(argc, argv, 1, 20000);
    pin(argument(argc, argv, 2, 0));
    signal(SIGPIPE, SIG_IGN);
    child_link links[MAX_CHILDREN];
    for (int c = 0; c < children; c++) links[c] = open_link();
    double *times_us = calloc((size_t)count, sizeof *times_us);
    if (times_us == NULL) fail("calloc");
    exchange(links, children, count, times_us);
    report(name, times_us, count);
    for (int c = 0; c < children; c++) kill(links[c].pid, SIGKILL);
    for (int c = 0; c < children; c++) waitpid(links[c].pid, NULL, 0);
    return 0;
}

static inline child_link open_pipes(void) {
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0) fail("pipe");
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
        close(down[1]);
        close(up[0]);
        echo_until_end(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    return (child_link){.to = down[1], .from = up[0], .pid = pid};
}

#endif
