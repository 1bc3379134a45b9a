// A closed loop of requests, as fast as they are answered: shows that the engine is never the limit of what we measure.
//   load PORT CONNECTIONS REQUESTS BODY_BYTES   prints {"requests": …, "seconds": …, "bad": …}
// A request that is sent is answered before the next one on its connection; an answer must carry its connection's mark.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 4096, MAX_BODY = 1 << 20, ANSWER_BYTES = 64 * 1024, EVENTS = 256 };

struct client {
    int fd;
    char *request;
    size_t request_len;
    char mark[32];
    char answer[ANSWER_BYTES];
    size_t got;
};

static long left, running, bad;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static long argument(const char *text, long least, long most) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < least || value > most) {
        fprintf(stderr, "load: %s is not between %ld and %ld\n", text, least, most);
        exit(2);
    }
    return value;
}

static void prepare(struct client *c, long number, size_t filling) {
    static const char head[] = "POST /v1/chat/completions HTTP/1.1\r\nhost: mock\r\ncontent-type: application/json\r\n"
                               "content-length: %zu\r\n\r\n";
    static const char body[] = "{\"model\":\"mock\",\"messages\":[{\"role\":\"user\",\"content\":\"%s ";
    static const char tail[] = "\"}]}";
    size_t room = sizeof head + sizeof body + sizeof tail + filling + 64;
    char *text = malloc(room);
    if (!text) die("malloc");
    snprintf(c->mark, sizeof c->mark, "[[load-%ld]]", number);
    size_t n = (size_t)snprintf(text, room, body, c->mark);
    memset(text + n, 'y', filling);
    memcpy(text + n + filling, tail, sizeof tail);
    n += filling + sizeof tail - 1;
    c->request = malloc(n + sizeof head + 32);
    if (!c->request) die("malloc");
    size_t h = (size_t)snprintf(c->request, sizeof head + 32, head, n);
    memcpy(c->request + h, text, n);
    c->request_len = h + n;
    free(text);
}

static void send_one(struct client *c) {
    c->got = 0;
    for (size_t sent = 0; sent < c->request_len;) { // a request is small beside the socket's buffer
        ssize_t n = send(c->fd, c->request + sent, c->request_len - sent, MSG_NOSIGNAL);
        if (n > 0) sent += (size_t)n;
        else if (errno != EINTR) die("send");
    }
    left--;
    running++;
}

// True when the answer is whole.
static bool receive(struct client *c) {
    ssize_t n = recv(c->fd, c->answer + c->got, ANSWER_BYTES - 1 - c->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) die("recv");
    c->got += (size_t)n;
    c->answer[c->got] = 0;
    const char *end = strstr(c->answer, "\r\n\r\n"), *length = strstr(c->answer, "content-length: ");
    if (!end || !length || length > end) return false;
    size_t whole = (size_t)(end - c->answer) + 4 + strtoul(length + 16, NULL, 10);
    if (whole >= ANSWER_BYTES) die("an answer is larger than this program reads");
    if (c->got < whole) return false;
    if (strncmp(c->answer, "HTTP/1.1 200", 12) != 0 || !strstr(end, c->mark)) bad++;
    return true;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: load PORT CONNECTIONS REQUESTS BODY_BYTES\n");
        return 2;
    }
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)argument(argv[1], 1, 65535))};
    long clients = argument(argv[2], 1, MAX_CONNECTIONS), requests = argument(argv[3], 1, 100000000);
    size_t filling = (size_t)argument(argv[4], 0, MAX_BODY);
    struct client *all = calloc((size_t)clients, sizeof *all);
    int poll = epoll_create1(EPOLL_CLOEXEC);
    if (!all || poll < 0) die("start");
    for (long i = 0; i < clients; i++) {
        int on = 1;
        all[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (all[i].fd < 0 || connect(all[i].fd, (struct sockaddr *)&at, sizeof at)) die("connect");
        setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &event)) die("epoll_ctl");
        prepare(&all[i], i, filling);
    }
    left = requests;
    double start = seconds();
    for (long i = 0; i < clients && left > 0; i++) send_one(&all[i]);
    while (running) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(poll, events, EVENTS, 30000);
        if (count == 0) {
            fprintf(stderr, "load: no answer for 30 s\n");
            return 1;
        }
        for (int i = 0; i < count; i++) {
            struct client *c = events[i].data.ptr;
            if (!receive(c)) continue;
            running--;
            if (left > 0) send_one(c);
        }
    }
    printf("{\"requests\":%ld,\"seconds\":%.6f,\"bad\":%ld}\n", requests, seconds() - start, bad);
    return bad ? 1 : 0;
}
