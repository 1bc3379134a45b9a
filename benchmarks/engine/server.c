#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "answers.h"
#include "clock.h"

enum { EVENTS = 512, READ_BYTES = 64 * 1024, KEEP_BYTES = 256 * 1024 };

struct server {
    struct engine *engine;
    int poll, listener, timer, signals;
    uint64_t armed;              // what the timer is set to
    struct connection *gone;     // freed after the events of one round, some of which may still name them
};

static bool fail(const char *what) {
    perror(what);
    return false;
}

static bool watch(const struct server *s, int fd, uint32_t events, void *who, int operation) {
    struct epoll_event event = {.events = events, .data.ptr = who};
    return epoll_ctl(s->poll, operation, fd, &event) == 0;
}

static void drop(struct server *s, struct connection *c, uint64_t now) {
    if (c->fd < 0) return;
    engine_abort(s->engine, c, now);
    close(c->fd);
    c->fd = -1;
    c->behind = s->gone;
    s->gone = c;
}

static void free_gone(struct server *s) {
    while (s->gone) {
        struct connection *c = s->gone;
        s->gone = c->behind;
        buffer_free(&c->in);
        buffer_free(&c->out);
        free(c);
    }
}

// Send what there is. False when the connection is gone.
static bool flush(struct server *s, struct connection *c, uint64_t now) {
    while (c->sent < c->out.len) {
        ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (n > 0) {
            c->sent += (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            if (!c->wants_out) watch(s, c->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, c, EPOLL_CTL_MOD);
            c->wants_out = true;
            return true;
        } else if (n < 0 && errno != EINTR) {
            drop(s, c, now);
            return false;
        }
    }
    c->sent = c->out.len = 0;
    if (c->out.cap > KEEP_BYTES) buffer_free(&c->out);
    if (c->wants_out) watch(s, c->fd, EPOLLIN | EPOLLRDHUP, c, EPOLL_CTL_MOD);
    c->wants_out = false;
    if (!c->close_after || c->stage != STAGE_READING) return true;
    drop(s, c, now);
    return false;
}

// The request in hand was answered: make room for the next.
static void next_request(struct connection *c) {
    buffer_drop(&c->in, c->request.used);
    c->request = (struct request){0};
    if (c->in.len == 0 && c->in.cap > KEEP_BYTES) buffer_free(&c->in);
}

// Take requests while they are whole and answered at once.
static void advance(struct server *s, struct connection *c, uint64_t now) {
    while (c->stage == STAGE_READING && !c->close_after && c->in.len) {
        switch (request_parse(&c->request, &c->in)) {
            case PARSED_MORE: flush(s, c, now); return;
            case PARSED_CONTINUE: buffer_text(&c->out, "HTTP/1.1 100 Continue\r\n\r\n"); flush(s, c, now); return;
            case PARSED_BAD: c->close_after = true; answer_error(&c->out, 400, "this is no HTTP request", true); break;
            case PARSED_TOO_LARGE: c->close_after = true; answer_error(&c->out, 413, "too large", true); break;
            case PARSED_WHOLE:
                engine_take(s->engine, c, now);
                if (c->stage == STAGE_READING) next_request(c);
        }
    }
    flush(s, c, now);
}

static void receive(struct server *s, struct connection *c, uint64_t now) {
    for (;;) {
        if (c->in.len > ((size_t)257 << 20)) { // more than any one request: somebody sends and does not listen
            drop(s, c, now);
            return;
        }
        buffer_reserve(&c->in, READ_BYTES);
        size_t room = c->in.cap - c->in.len;
        ssize_t n = recv(c->fd, c->in.data + c->in.len, room, 0);
        if (n > 0) {
            c->in.len += (size_t)n;
            if ((size_t)n == room) continue;
            break;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        drop(s, c, now);
        return;
    }
    advance(s, c, now);
}

static void accept_all(struct server *s) {
    for (int fd; (fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct connection *c = checked_alloc(sizeof *c);
        c->fd = fd;
        c->heap_place = NOT_IN_HEAP;
        s->engine->figures.connections++;
        if (!watch(s, fd, EPOLLIN | EPOLLRDHUP, c, EPOLL_CTL_ADD)) {
            close(fd);
            free(c);
        }
    }
}

static void finish_due(struct server *s) {
    uint64_t now = now_ns();
    for (struct connection *c; (c = engine_finish(s->engine, now));) {
        next_request(c);
        advance(s, c, now);
    }
}

static void arm(struct server *s) {
    uint64_t due = slots_next(&s->engine->slots);
    if (due == s->armed) return;
    s->armed = due;
    struct itimerspec when = {.it_value = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)}};
    timerfd_settime(s->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static bool listen_on(struct server *s, const struct options *o) {
    int on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)o->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->listener < 0) return fail("socket");
    setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s->listener, (struct sockaddr *)&at, size) || listen(s->listener, 4096)) return fail("listen");
    if (getsockname(s->listener, (struct sockaddr *)&at, &size)) return fail("getsockname");
    printf("http://127.0.0.1:%d\n", ntohs(at.sin_port));
    fflush(stdout);
    if (!o->ready_file) return true;
    char draft[4096];
    if ((size_t)snprintf(draft, sizeof draft, "%s.draft", o->ready_file) >= sizeof draft) return false;
    FILE *file = fopen(draft, "w");
    if (!file) return fail(draft);
    fprintf(file, "http://127.0.0.1:%d", ntohs(at.sin_port));
    if (fclose(file) || rename(draft, o->ready_file)) return fail(o->ready_file);
    return true;
}

static bool prepare(struct server *s) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    s->poll = epoll_create1(EPOLL_CLOEXEC);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    s->signals = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->poll < 0 || s->timer < 0 || s->signals < 0) return fail("start");
    if (!listen_on(s, &s->engine->options)) return false;
    return watch(s, s->listener, EPOLLIN, &s->listener, EPOLL_CTL_ADD) &&
           watch(s, s->timer, EPOLLIN, &s->timer, EPOLL_CTL_ADD) &&
           watch(s, s->signals, EPOLLIN, &s->signals, EPOLL_CTL_ADD);
}

static void client_event(struct server *s, struct connection *c, uint32_t events) {
    uint64_t now = now_ns();
    if (c->fd < 0) return;
    if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
        drop(s, c, now);
        return;
    }
    if ((events & EPOLLOUT) && !flush(s, c, now)) return;
    if (events & EPOLLIN) receive(s, c, now);
}

int serve(struct engine *e) {
    struct server s = {.engine = e};
    struct epoll_event events[EVENTS];
    if (!prepare(&s)) return 1;
    for (;;) {
        int count = epoll_wait(s.poll, events, EVENTS, -1);
        if (count < 0 && errno != EINTR) return 1;
        for (int i = 0; i < count; i++) {
            void *who = events[i].data.ptr;
            if (who == &s.signals) return 0;
            if (who == &s.timer) {
                uint64_t ticks;
                if (read(s.timer, &ticks, sizeof ticks) > 0) s.armed = 0;
            } else if (who == &s.listener) {
                accept_all(&s);
            } else {
                client_event(&s, who, events[i].events);
            }
        }
        finish_due(&s);
        free_gone(&s);
        arm(&s);
    }
}
