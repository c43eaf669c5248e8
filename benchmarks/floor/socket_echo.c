/* The same call over one Unix stream socket, which the control link uses. socket_echo [COUNT [CPU]] */
#include "exchange.h"
#include <sys/socket.h>

static child_link open_socket(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socketpair");
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
        close(ends[0]);
        echo_until_end(ends[1], ends[1]);
    }
    close(ends[1]);
    return (child_link){.to = ends[0], .from = ends[0], .pid = pid};
}

int main(int argc, char **argv) { return run_exchange("socket_echo", 1, open_socket, argc, argv); }
