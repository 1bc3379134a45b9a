// What the engine saw: counts since the last reset, and a timeline of windows.
#ifndef FIGURES_H
#define FIGURES_H

#include <stdint.h>

#include "buffer.h"
#include "options.h"
#include "slots.h"

enum { WINDOW_MS = 250, MAX_WINDOWS = 8192 };

struct window {
    uint32_t completed, working, waiting; // the latter two: their maximum
};

struct figures {
    uint64_t requests, completed, failed, refused, aborted, connections, body_bytes;
    size_t max_working, max_waiting;
    uint64_t busy_ns;            // slot time of the rows that were completed
    uint64_t first_ns, last_ns;  // the first arrival, the last moment a row was due
    uint64_t prompt_tokens, output_tokens;
    struct window windows[MAX_WINDOWS]; // since first_ns
};

void figures_arrived(struct figures *f, const struct slots *s, uint64_t now);
void figures_completed(struct figures *f, const struct connection *c);

void write_stats(struct buffer *out, const struct figures *f, const struct slots *s, const struct options *o);
void write_timeline(struct buffer *out, const struct figures *f);
// As vLLM's /metrics, the gauges and counters that clients look at.
void write_metrics(struct buffer *out, const struct figures *f, const struct slots *s, const struct options *o);

#endif
