/* A listening socket on loopback, at a port that the kernel picks and that is printed as the first line. */
#ifndef HOTBAY_LISTENING_H
#define HOTBAY_LISTENING_H

#include "measure.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static int listen_on_loopback(int backlog) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, backlog) != 0)
        fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

#endif
