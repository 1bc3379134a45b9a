#include "engine.h"

#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "clock.h"

static void respond(struct engine *e, struct connection *c) {
    e->answered++;
    long every = e->options.fail_every;
    if (every && e->answered % (uint64_t)every == 0) {
        c->row.status = e->options.fail_status;
        e->figures.failed++;
    } else {
        e->figures.output_tokens += e->options.reply_bytes / 4 + 1;
    }
    answer_row(&c->out, &c->row, &e->options, c->close_after);
}

static uint64_t service_ns(const struct options *o, uint64_t hash) {
    double ms = o->latency_ms;
    if (o->slow_every && hash % (uint64_t)o->slow_every == 0) ms = o->slow_ms;
    else if (o->spread > 0) ms *= 1 + o->spread * (2 * (double)(hash >> 11) / (double)(1ull << 53) - 1);
    return (uint64_t)(ms * NS_PER_MS);
}

static void take_row(struct engine *e, struct connection *c, enum row_kind kind, uint64_t now) {
    struct options *o = &e->options;
    row_read(&c->row, kind, c->in.data + c->request.head, c->request.body);
    e->figures.requests++;
    e->figures.body_bytes += c->request.body;
    if (o->queue >= 0 && e->slots.working >= e->slots.count && e->slots.waiting >= (size_t)o->queue) {
        e->figures.refused++;
        answer_error(&c->out, 503, "the queue of the mock is full", c->close_after);
        return;
    }
    c->service_ns = service_ns(o, c->row.hash);
    if (c->service_ns == 0) { // no slot is taken for no time
        figures_arrived(&e->figures, &e->slots, now);
        c->due_ns = now;
        figures_completed(&e->figures, c);
        respond(e, c);
        return;
    }
    slots_add(&e->slots, c, now);
    figures_arrived(&e->figures, &e->slots, now);
}

static double from_query(const struct connection *c, const char *name, double otherwise, double least, double most) {
    char text[256];
    size_t n = c->request.query_len < sizeof text - 1 ? c->request.query_len : sizeof text - 1;
    memcpy(text, c->in.data + c->request.query, n);
    text[n] = 0;
    const char *found = strstr(text, name);
    if (!found || found[strlen(name)] != '=') return otherwise;
    double value = strtod(found + strlen(name) + 1, NULL);
    return value >= least && value <= most ? value : otherwise;
}

// What an engine that is given another GPU, or loses one, looks like from outside.
static void change(struct engine *e, const struct connection *c, uint64_t now) {
    e->slots.count = (size_t)from_query(c, "slots", (double)e->slots.count, 1, 1e6);
    e->options.latency_ms = from_query(c, "latency_ms", e->options.latency_ms, 0, 1e7);
    e->options.queue = (long)from_query(c, "queue", (double)e->options.queue, -1, 1e9);
    slots_fill(&e->slots, now);
}

static void take_other(struct engine *e, struct connection *c, uint64_t now) {
    const struct request *r = &c->request;
    struct buffer body = {0};
    const char *type = "application/json";
    if (request_is(r, &c->in, "/v1/models")) {
        answer_models(&c->out, &e->options, c->close_after);
        return;
    }
    if (request_is(r, &c->in, "/openapi.json")) {
        answer_paths(&c->out, c->close_after);
        return;
    }
    if (request_is(r, &c->in, "/health")) type = "text/plain";
    else if (request_is(r, &c->in, "/version")) buffer_text(&body, "{\"version\":\"0.0.0+mock\"}");
    else if (request_is(r, &c->in, "/stats")) write_stats(&body, &e->figures, &e->slots, &e->options);
    else if (request_is(r, &c->in, "/timeline")) write_timeline(&body, &e->figures);
    else if (request_is(r, &c->in, "/metrics")) {
        type = "text/plain; version=0.0.4; charset=utf-8";
        write_metrics(&body, &e->figures, &e->slots, &e->options);
    } else if (r->post && request_is(r, &c->in, "/reset")) {
        memset(&e->figures, 0, sizeof e->figures);
        buffer_text(&body, "{}");
    } else if (r->post && request_is(r, &c->in, "/change")) {
        change(e, c, now);
        buffer_text(&body, "{}");
    } else {
        answer_error(&c->out, 404, "the mock has no such route", c->close_after);
        return;
    }
    answer(&c->out, 200, type, body.data, body.len, c->close_after);
    buffer_free(&body);
}

void engine_take(struct engine *e, struct connection *c, uint64_t now) {
    const struct request *r = &c->request;
    c->close_after = r->close;
    if (r->post && request_is(r, &c->in, "/v1/chat/completions")) take_row(e, c, ROW_CHAT, now);
    else if (r->post && request_is(r, &c->in, "/v1/completions")) take_row(e, c, ROW_COMPLETION, now);
    else if (r->post && request_is(r, &c->in, "/v1/embeddings")) take_row(e, c, ROW_EMBEDDING, now);
    else take_other(e, c, now);
}

struct connection *engine_finish(struct engine *e, uint64_t now) {
    struct connection *c = slots_finish(&e->slots, now);
    if (!c) return NULL;
    figures_completed(&e->figures, c);
    respond(e, c);
    return c;
}

void engine_abort(struct engine *e, struct connection *c, uint64_t now) {
    if (c->stage == STAGE_READING) return;
    slots_abort(&e->slots, c, now);
    e->figures.aborted++;
}
