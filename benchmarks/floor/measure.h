/* What the floor programs share: a clock, pinning, whole reads and writes, and the report.
 *
 * Every program prints one JSON object on one line. Times are microseconds. */
#ifndef HOTBAY_MEASURE_H
#define HOTBAY_MEASURE_H

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 100 };

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

static inline double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Children inherit the mask: all processes of a program share the CPU, because waking another one costs several times
 * the exchange itself and varies from round to round. */
static inline void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) fail("sched_setaffinity");
}

/* Returns 0 at end of file, which is how a child learns that its parent is done. */
static inline int read_whole(int fd, char *buffer, size_t size) {
    size_t have = 0;
    while (have < size) {
        ssize_t got = read(fd, buffer + have, size - have);
        if (got == 0) return 0;
        if (got < 0 && errno != EINTR) fail("read");
        if (got > 0) have += (size_t)got;
    }
    return 1;
}

static inline void write_whole(int fd, const char *buffer, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t put = write(fd, buffer + done, size - done);
        if (put < 0 && errno != EINTR) fail("write");
        if (put > 0) done += (size_t)put;
    }
}

/* The value of a header field of the head that ends at `end`, or NULL. `name` is in lower case with its colon. */
static inline const char *header(const char *head, const char *end, const char *name) {
    const char *field = head;
    while ((field = strstr(field, "\r\n")) != NULL && field < end) {
        field += 2;
        if (strncasecmp(field, name, strlen(name)) == 0) return field + strlen(name);
    }
    return NULL;
}

/* Bytes of the first whole HTTP message in `bytes`, which ends with a NUL; 0 while it is incomplete, -1 if neither
 * content-length nor chunks announce its body. A chunked message has to be the last one in `bytes`. */
static inline long whole_message(const char *bytes, size_t have) {
    const char *end = strstr(bytes, "\r\n\r\n");
    if (end == NULL) return 0;
    size_t head_bytes = (size_t)(end - bytes) + 4;
    if (strncmp(bytes, "GET ", 4) == 0) return (long)head_bytes;
    const char *value = header(bytes, end, "content-length:");
    if (value != NULL) {
        size_t length = head_bytes + strtoul(value, NULL, 10);
        return length <= have ? (long)length : 0;
    }
    if (header(bytes, end, "transfer-encoding:") == NULL) return -1;
    return have >= head_bytes + 5 && memcmp(bytes + have - 5, "0\r\n\r\n", 5) == 0 ? (long)have : 0;
}

static inline int argument(int argc, char **argv, int index, int fallback) {
    return argc > index ? atoi(argv[index]) : fallback;
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static inline void report(const char *name, double *times_us, int count) {
    double total_us = 0;
    for (int i = 0; i < count; i++) total_us += times_us[i];
    qsort(times_us, (size_t)count, sizeof *times_us, ascending);
    printf("{\"name\": \"%s\", \"count\": %d, \"p50_us\": %.3f, \"p99_us\": %.3f, \"per_s\": %.1f}\n", name, count,
           times_us[count / 2], times_us[(int)(count * 0.99)], count * 1e6 / total_us);
}

#endif
