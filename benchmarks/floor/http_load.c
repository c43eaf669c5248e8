/* Load over N kept-alive connections, in a closed loop or at a rate.
 *
 * http_load PORT [CONNECTIONS [SECONDS [CPU [PATH [STREAM [RATE]]]]]]. Without a RATE each connection sends a request as
 * soon as the last one was answered. With one, requests are due at that many a second whatever the answers do; one for
 * which no connection is free waits, and its time counts from when it was due. SIGTERM ends a run early. What is under
 * way at the end of a closed loop is dropped; at a rate all that was due is waited for, and counts as failed if no
 * answer comes.
 *
 * The request is a completion of about 1 kB, with STREAM 1 one that asks for events. Anything but a whole answer with
 * status 200 counts as failed and opens a new connection. Besides whole answers it times their first bytes. */
#include "measure.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <signal.h>

enum { MAX_CONNECTIONS = 256, ANSWER_BYTES = 64 * 1024, MAX_TIMES = 4 * 1000 * 1000, LAST_ANSWERS_US = 20 * 1000 * 1000 };

typedef struct {
    int fd;
    size_t have;
    double sent_us, first_us;
    char bytes[ANSWER_BYTES];
} connection;

static connection connections[MAX_CONNECTIONS];
static char request[4096];
static size_t request_bytes;
static double *times_us, *first_times_us;
static int answered, failed, connects, port, poller;
static connection *idle[MAX_CONNECTIONS];
static int idle_count;
static long issued;
static double rate, begun_us, end_us;
static volatile sig_atomic_t told_to_end;

static void on_signal(int number) {
    (void)number;
    told_to_end = 1;
}

static void prepare_request(const char *path, int streamed) {
    char prompt[901], body[1024];
    memset(prompt, 'p', sizeof prompt - 1);
    prompt[sizeof prompt - 1] = '\0';
    int length = snprintf(body, sizeof body, "{\"model\":\"m\",\"max_tokens\":8,%s\"prompt\":\"%s\"}",
                          streamed ? "\"stream\":true," : "", prompt);
    request_bytes = (size_t)snprintf(request, sizeof request,
                                     "POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
                                     "x-hotbay-path: /v1/completions\r\ncontent-length: %d\r\n\r\n%s",
                                     path, port, length, body);
}

static void send_request(connection *c, double since_us) {
    c->have = 0;
    c->sent_us = since_us;
    write_whole(c->fd, request, request_bytes);
}

/* What a connection does that has nothing to wait for. */
static void go_on(connection *c) {
    if (rate > 0)
        idle[idle_count++] = c;
    else
        send_request(c, now_us());
}

static double due_us(void) { return begun_us + (double)issued * 1e6 / rate; }

static void send_due(void) {
    while (idle_count > 0 && due_us() <= now_us() && due_us() < end_us) {
        double since_us = due_us();
        issued++;
        send_request(idle[--idle_count], since_us);
    }
}

static void open_connection(connection *c) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
    connects++;
    go_on(c);
}

static void fail_request(connection *c) {
    failed++;
    close(c->fd);
    open_connection(c);
}

static void receive(connection *c) {
    ssize_t got = read(c->fd, c->bytes + c->have, ANSWER_BYTES - 1 - c->have);
    if (got <= 0) {
        fail_request(c);
        return;
    }
    if (c->have == 0) c->first_us = now_us();
    c->have += (size_t)got;
    c->bytes[c->have] = '\0';
    long length = whole_message(c->bytes, c->have);
    if (length < 0 || (length > 0 && strncmp(c->bytes, "HTTP/1.1 200", 12) != 0)) {
        fail_request(c);
    } else if (length > 0) {
        if (answered >= MAX_TIMES) fail("too many answers");
        first_times_us[answered] = c->first_us - c->sent_us;
        times_us[answered++] = now_us() - c->sent_us;
        go_on(c);
    }
}

/* Microseconds to wait for answers: at most until the next request is due, or the end. */
static double wait_us(void) {
    double now = now_us(), until_us = now + 100e3;
    if (now < end_us && end_us < until_us) until_us = end_us;
    if (rate > 0 && idle_count > 0 && due_us() < end_us && due_us() < until_us) until_us = due_us();
    return until_us > now ? until_us - now : 0;
}

static int is_over(int count) {
    double now = now_us();
    if (told_to_end && now < end_us) end_us = now;
    if (now < end_us) return 0;
    return rate <= 0 || (idle_count == count && due_us() >= end_us) || now > end_us + LAST_ANSWERS_US;
}

static void run(int count) {
    struct epoll_event events[64];
    while (!is_over(count)) {
        if (rate > 0) send_due();
        struct timespec wait = {.tv_nsec = (long)(wait_us() * 1e3)};
        int ready = epoll_pwait2(poller, events, 64, &wait, NULL);
        for (int i = 0; i < ready; i++) receive(events[i].data.ptr);
    }
}

int main(int argc, char **argv) {
    port = argument(argc, argv, 1, 0);
    int count = argument(argc, argv, 2, 32);
    double seconds = argc > 3 ? atof(argv[3]) : 2;
    rate = argc > 7 ? atof(argv[7]) : 0;
    pin(argument(argc, argv, 4, 0));
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, on_signal);
    if (port == 0 || count < 1 || count > MAX_CONNECTIONS) {
        fprintf(stderr, "http_load PORT [CONNECTIONS 1..%d [SECONDS [CPU [PATH [STREAM [RATE]]]]]]\n", MAX_CONNECTIONS);
        return 2;
    }
    prepare_request(argc > 5 ? argv[5] : "/v1/completions", argument(argc, argv, 6, 0));
    times_us = calloc(MAX_TIMES, sizeof *times_us);
    first_times_us = calloc(MAX_TIMES, sizeof *first_times_us);
    poller = epoll_create1(0);
    if (times_us == NULL || first_times_us == NULL || poller < 0) fail("set-up");
    begun_us = now_us();
    end_us = begun_us + seconds * 1e6;
    for (int i = 0; i < count; i++) open_connection(&connections[i]);
    run(count);
    if (rate > 0) failed += count - idle_count;
    double elapsed_us = now_us() - begun_us;
    qsort(times_us, (size_t)answered, sizeof *times_us, ascending);
    qsort(first_times_us, (size_t)answered, sizeof *first_times_us, ascending);
    printf("{\"name\": \"http_load\", \"count\": %d, \"failed\": %d, \"connects\": %d, \"per_s\": %.1f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"first_p50_us\": %.1f}\n",
           answered, failed, connects, answered * 1e6 / elapsed_us, answered ? times_us[answered / 2] : 0.0,
           answered ? times_us[(int)(answered * 0.99)] : 0.0, answered ? first_times_us[answered / 2] : 0.0);
    return 0;
}
