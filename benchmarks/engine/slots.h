// Rows in their slots, and those that wait for one, first come first served.
#ifndef SLOTS_H
#define SLOTS_H

#include "connection.h"

struct slots {
    size_t count;              // rows that are worked on at once
    struct connection **heap;  // working, the one that is due first on top
    size_t working, cap;
    struct connection *first, *last; // waiting
    size_t waiting;
};

// Begin or wait. `now` is when the row arrived.
void slots_add(struct slots *s, struct connection *c, uint64_t now);

// Give a row that is due by `now`, or NULL. Its slot goes to the next row from the moment it was due, not from when this
// thread got round to it: the engine's time is not this machine's.
struct connection *slots_finish(struct slots *s, uint64_t now);

// Take out a row whose client has gone; its slot is free from `now` on.
void slots_abort(struct slots *s, struct connection *c, uint64_t now);

// Let as many rows begin as `count` allows, after it was raised.
void slots_fill(struct slots *s, uint64_t now);

// When the next row is due, 0 when none is in work.
uint64_t slots_next(const struct slots *s);

#endif
