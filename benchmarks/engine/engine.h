// The whole engine, and what one request does to it.
#ifndef ENGINE_H
#define ENGINE_H

#include "connection.h"
#include "figures.h"
#include "options.h"
#include "slots.h"

struct engine {
    struct options options;
    struct slots slots;
    struct figures figures;
    uint64_t answered; // rows in all, resets or not: which of them fail
};

// Take the whole request of `c`: answer it into `c->out`, or give its row a slot (then `engine_finish` answers).
void engine_take(struct engine *e, struct connection *c, uint64_t now);

// Answer a row that is due; NULL when none is.
struct connection *engine_finish(struct engine *e, uint64_t now);

// The client has gone.
void engine_abort(struct engine *e, struct connection *c, uint64_t now);

#endif
