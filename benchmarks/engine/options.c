#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void refuse(const char *name, const char *value) {
    fprintf(stderr, "mock-engine: %s %s makes no sense\n", name, value ? value : "without a value");
    exit(2);
}

static double number(const char *name, const char *text, double least, double most) {
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    if (errno || end == text || *end || !(value >= least && value <= most)) refuse(name, text);
    return value;
}

struct options read_options(int argc, char **argv) {
    struct options o = {.model = "mock", .slots = 64, .queue = -1, .slow_ms = 1000, .fail_status = 500,
                        .reply_bytes = 512, .dimensions = 64};
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value) refuse(name, NULL);
        if (!strcmp(name, "--port")) o.port = (int)number(name, value, 0, 65535);
        else if (!strcmp(name, "--model")) o.model = value;
        else if (!strcmp(name, "--ready-file")) o.ready_file = value;
        else if (!strcmp(name, "--slots")) o.slots = (long)number(name, value, 1, 1e6);
        else if (!strcmp(name, "--queue")) o.queue = (long)number(name, value, -1, 1e9);
        else if (!strcmp(name, "--latency-ms")) o.latency_ms = number(name, value, 0, 1e7);
        else if (!strcmp(name, "--spread")) o.spread = number(name, value, 0, 1);
        else if (!strcmp(name, "--slow-every")) o.slow_every = (long)number(name, value, 0, 1e12);
        else if (!strcmp(name, "--slow-ms")) o.slow_ms = number(name, value, 0, 1e7);
        else if (!strcmp(name, "--fail-every")) o.fail_every = (long)number(name, value, 0, 1e12);
        else if (!strcmp(name, "--fail-status")) o.fail_status = (int)number(name, value, 400, 599);
        else if (!strcmp(name, "--reply-bytes")) o.reply_bytes = (size_t)number(name, value, 0, 64 << 20);
        else if (!strcmp(name, "--dimensions")) o.dimensions = (int)number(name, value, 1, 1 << 16);
        else refuse(name, value);
    }
    if (strspn(o.model, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/:") != strlen(o.model))
        refuse("--model", o.model);
    return o;
}
