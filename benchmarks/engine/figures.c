#include "figures.h"

#include <inttypes.h>
#include <sys/resource.h>

#include "clock.h"

static struct window *window_at(struct figures *f, uint64_t at) {
    uint64_t i = (at - f->first_ns) / ((uint64_t)WINDOW_MS * 1000000u);
    return &f->windows[i < MAX_WINDOWS ? i : MAX_WINDOWS - 1];
}

void figures_arrived(struct figures *f, const struct slots *s, uint64_t now) {
    if (!f->first_ns) f->first_ns = now;
    if (s->working > f->max_working) f->max_working = s->working;
    if (s->waiting > f->max_waiting) f->max_waiting = s->waiting;
    struct window *w = window_at(f, now);
    if (s->working > w->working) w->working = (uint32_t)s->working;
    if (s->waiting > w->waiting) w->waiting = (uint32_t)s->waiting;
}

void figures_completed(struct figures *f, const struct connection *c) {
    f->completed++;
    f->busy_ns += c->service_ns;
    f->prompt_tokens += c->row.prompt_tokens;
    if (c->due_ns > f->last_ns) f->last_ns = c->due_ns;
    if (f->first_ns && c->due_ns >= f->first_ns) window_at(f, c->due_ns)->completed++;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

void write_stats(struct buffer *out, const struct figures *f, const struct slots *s, const struct options *o) {
    double span = f->last_ns > f->first_ns ? (double)(f->last_ns - f->first_ns) / 1e9 : 0;
    buffer_format(out, "{\"requests\":%" PRIu64 ",\"completed\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"refused\":%" PRIu64
                  ",\"aborted\":%" PRIu64 ",\"connections\":%" PRIu64 ",\"body_bytes\":%" PRIu64,
                  f->requests, f->completed, f->failed, f->refused, f->aborted, f->connections, f->body_bytes);
    buffer_format(out, ",\"working\":%zu,\"waiting\":%zu,\"max_working\":%zu,\"max_waiting\":%zu,\"slots\":%zu",
                  s->working, s->waiting, f->max_working, f->max_waiting, s->count);
    buffer_format(out, ",\"latency_ms\":%g,\"busy_seconds\":%.6f,\"span_seconds\":%.6f,\"first_at\":%.6f"
                  ",\"last_at\":%.6f,\"cpu_seconds\":%.6f}",
                  o->latency_ms, (double)f->busy_ns / 1e9, span, wall_seconds(f->first_ns), wall_seconds(f->last_ns),
                  cpu_seconds());
}

void write_timeline(struct buffer *out, const struct figures *f) {
    buffer_format(out, "{\"window_ms\":%d,\"windows\":[", WINDOW_MS);
    size_t last = 0;
    for (size_t i = 0; i < MAX_WINDOWS; i++)
        if (f->windows[i].completed || f->windows[i].working) last = i + 1;
    for (size_t i = 0; i < last; i++)
        buffer_format(out, "%s[%u,%u,%u]", i ? "," : "", f->windows[i].completed, f->windows[i].working,
                      f->windows[i].waiting);
    buffer_text(out, "]}");
}

static void metric(struct buffer *out, const char *name, const char *kind, double value, const char *model) {
    buffer_format(out, "# TYPE vllm:%s %s\nvllm:%s{engine=\"0\",model_name=\"%s\"} %.1f\n", name, kind, name, model,
                  value);
}

void write_metrics(struct buffer *out, const struct figures *f, const struct slots *s, const struct options *o) {
    metric(out, "num_requests_running", "gauge", (double)s->working, o->model);
    metric(out, "num_requests_waiting", "gauge", (double)s->waiting, o->model);
    metric(out, "kv_cache_usage_perc", "gauge", s->count ? (double)s->working / (double)s->count : 0, o->model);
    metric(out, "prompt_tokens_total", "counter", (double)f->prompt_tokens, o->model);
    metric(out, "generation_tokens_total", "counter", (double)f->output_tokens, o->model);
    metric(out, "request_success_total", "counter", (double)f->completed, o->model);
}
