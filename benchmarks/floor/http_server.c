/* The upstream of the gateway figures, in the part of a model server that costs nothing. http_server [CPU]
 *
 * A completion is one fixed JSON body; with "stream":true it is EVENTS server-sent events, each a chunk and a send of
 * its own; a GET is answered with a page of metrics as vLLM writes it. Prints the port it listens on, then serves until
 * it is killed or its parent is gone. One thread, level-triggered epoll, kept-alive connections. A request's body has
 * to be announced by content-length. */
#include "listening.h"
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

enum { MAX_CONNECTIONS = 1024, REQUEST_BYTES = 64 * 1024, EVENTS = 8 };

typedef struct {
    char bytes[REQUEST_BYTES];
    size_t have;
} request_buffer;

static request_buffer *buffers[MAX_CONNECTIONS];

static const char BODY[] =
    "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"ok\","
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}";
static const char METRICS[] =
    "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\"} 1\n"
    "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 2\n"
    "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"m\"} 0.25\n"
    "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1\n";
static const char EVENT[] =
    "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"ok\"}]}\n\n";
static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
static const char STREAM_END[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

typedef struct {
    char bytes[2048];
    size_t size;
} prepared;

static prepared completion, page, event;

static void prepare(prepared *answer, const char *type, const char *body) {
    answer->size = (size_t)snprintf(answer->bytes, sizeof answer->bytes,
                                    "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n%s", type,
                                    strlen(body), body);
}

static void drop(int fd) {
    free(buffers[fd]);
    buffers[fd] = NULL;
    close(fd);
}

static int put(int fd, const char *bytes, size_t size) {
    return send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

static int stream(int fd) {
    if (!put(fd, STREAM_HEAD, sizeof STREAM_HEAD - 1)) return 0;
    for (int i = 0; i < EVENTS; i++)
        if (!put(fd, event.bytes, event.size)) return 0;
    return put(fd, STREAM_END, sizeof STREAM_END - 1);
}

static int answer(int fd, const char *request, size_t size) {
    if (strncmp(request, "GET ", 4) == 0) return put(fd, page.bytes, page.size);
    if (memmem(request, size, "\"stream\":true", 13) != NULL) return stream(fd);
    return put(fd, completion.bytes, completion.size);
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
        if (!answer(fd, buffer->bytes, (size_t)length)) break;
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

int main(int argc, char **argv) {
    pin(argument(argc, argv, 1, 0));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prepare(&completion, "application/json", BODY);
    prepare(&page, "text/plain; version=0.0.4", METRICS);
    event.size = (size_t)snprintf(event.bytes, sizeof event.bytes, "%zx\r\n%s\r\n", sizeof EVENT - 1, EVENT);
    int listener = listen_on_loopback(128), poller = epoll_create1(0);
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
