#include "slots.h"

#include <string.h>

static bool sooner(const struct connection *a, const struct connection *b) { return a->due_ns < b->due_ns; }

static void place(struct slots *s, struct connection *c, size_t i) {
    s->heap[i] = c;
    c->heap_place = i;
}

static void sift(struct slots *s, struct connection *c, size_t i) {
    while (i && sooner(c, s->heap[(i - 1) / 2])) {
        place(s, s->heap[(i - 1) / 2], i);
        i = (i - 1) / 2;
    }
    for (size_t child; (child = 2 * i + 1) < s->working; i = child) {
        if (child + 1 < s->working && sooner(s->heap[child + 1], s->heap[child])) child++;
        if (!sooner(s->heap[child], c)) break;
        place(s, s->heap[child], i);
    }
    place(s, c, i);
}

static void start(struct slots *s, struct connection *c, uint64_t from) {
    if (s->working == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 256;
        s->heap = checked_realloc(s->heap, s->cap * sizeof *s->heap);
    }
    c->stage = STAGE_WORKING;
    c->due_ns = from + c->service_ns;
    sift(s, c, s->working++);
}

static void take_out(struct slots *s, struct connection *c) {
    size_t i = c->heap_place;
    struct connection *last = s->heap[--s->working];
    if (last != c) sift(s, last, i);
    c->heap_place = NOT_IN_HEAP;
}

static void unlink_waiting(struct slots *s, struct connection *c) {
    if (c->before) c->before->behind = c->behind;
    else s->first = c->behind;
    if (c->behind) c->behind->before = c->before;
    else s->last = c->before;
    c->before = c->behind = NULL;
    s->waiting--;
}

void slots_fill(struct slots *s, uint64_t now) {
    while (s->first && s->working < s->count) {
        struct connection *c = s->first;
        unlink_waiting(s, c);
        start(s, c, now);
    }
}

void slots_add(struct slots *s, struct connection *c, uint64_t now) {
    if (s->working < s->count) {
        start(s, c, now);
        return;
    }
    c->stage = STAGE_WAITING;
    c->before = s->last;
    c->behind = NULL;
    if (s->last) s->last->behind = c;
    else s->first = c;
    s->last = c;
    s->waiting++;
}

struct connection *slots_finish(struct slots *s, uint64_t now) {
    if (!s->working || s->heap[0]->due_ns > now) return NULL;
    struct connection *c = s->heap[0];
    take_out(s, c);
    slots_fill(s, c->due_ns);
    c->stage = STAGE_READING;
    return c;
}

void slots_abort(struct slots *s, struct connection *c, uint64_t now) {
    if (c->stage == STAGE_WAITING) unlink_waiting(s, c);
    if (c->stage == STAGE_WORKING) {
        take_out(s, c);
        slots_fill(s, now);
    }
    c->stage = STAGE_READING;
}

uint64_t slots_next(const struct slots *s) { return s->working ? s->heap[0]->due_ns : 0; }
