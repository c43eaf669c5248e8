/* The upstream of the gateway figures: answers every request with one fixed JSON body. http_server [CPU]
 *
 * Prints the port it listens on, then serves until it is killed. One thread, level-triggered epoll, kept-alive
 * connections. A request's body has to be announced by content-length. */
#include "measure.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { MAX_CONNECTIONS = 1024, REQUEST_BYTES = 64 * 1024 };

typedef struct {
    char bytes[REQUEST_BYTES];
    size_t have;
} request_buffer;

static request_buffer *buffers[MAX_CONNECTIONS];

static const char BODY[] =
    "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"ok\","
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}";
static char answer[1024];
static size_t answer_bytes;

static void drop(int fd) {
    free(buffers[fd]);
    buffers[fd] = NULL;
    close(fd);
}

static void serve(int fd) {
    request_buffer *buffer = buffers[fd];
    ssize_t got = read(fd, buffer->bytes + buffer->have, REQUEST_BYTES - 1 - buffer->have);
    if (got <= 0) {
        drop(fd);
        return;
    }
    buffer->have += (size_t)got;
    buffer->bytes[buffer->have] = '\0';
    long length;
    while ((length = whole_message(buffer->bytes, buffer->have)) > 0) {
        if (send(fd, answer, answer_bytes, MSG_NOSIGNAL) != (ssize_t)answer_bytes) break;
        buffer->have -= (size_t)length;
        memmove(buffer->bytes, buffer->bytes + length, buffer->have + 1);
    }
    if (length != 0) drop(fd);
}

static void welcome(int listener, int poller) {
    int fd = accept(listener, NULL, NULL), on = 1;
    if (fd < 0) return;
    if (fd >= MAX_CONNECTIONS || (buffers[fd] = calloc(1, sizeof **buffers)) == NULL) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 128) != 0)
        fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int argc, char **argv) {
    pin(argument(argc, argv, 1, 0));
    answer_bytes = (size_t)snprintf(answer, sizeof answer,
                                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                                    sizeof BODY - 1, BODY);
    int listener = listen_on_loopback(), poller = epoll_create1(0);
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
