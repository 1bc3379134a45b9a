#include "buffer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 1024 };

void *checked_realloc(void *old, size_t bytes) {
    void *found = realloc(old, bytes ? bytes : 1);
    if (!found) {
        fprintf(stderr, "mock-engine: out of memory (%zu bytes)\n", bytes);
        exit(1);
    }
    return found;
}

void *checked_alloc(size_t bytes) { return memset(checked_realloc(NULL, bytes), 0, bytes); }

void buffer_reserve(struct buffer *b, size_t more) {
    if (more > SIZE_MAX / 4 - b->len) {
        fprintf(stderr, "mock-engine: a buffer of %zu bytes was asked for\n", more);
        exit(1);
    }
    size_t need = b->len + more;
    if (need <= b->cap) return;
    size_t cap = b->cap ? b->cap : SMALLEST;
    while (cap < need) cap *= 2;
    b->data = checked_realloc(b->data, cap);
    b->cap = cap;
}

void buffer_add(struct buffer *b, const void *bytes, size_t count) {
    if (count == 0) return;
    buffer_reserve(b, count);
    memcpy(b->data + b->len, bytes, count);
    b->len += count;
}

void buffer_text(struct buffer *b, const char *text) { buffer_add(b, text, strlen(text)); }

void buffer_fill(struct buffer *b, char byte, size_t count) {
    if (count == 0) return;
    buffer_reserve(b, count);
    memset(b->data + b->len, byte, count);
    b->len += count;
}

void buffer_format(struct buffer *b, const char *format, ...) {
    buffer_reserve(b, SMALLEST);
    for (;;) { // the second time, if at all, there is room enough
        size_t room = b->cap - b->len;
        va_list args;
        va_start(args, format);
        int need = vsnprintf(b->data + b->len, room, format, args);
        va_end(args);
        if (need < 0) return;
        if ((size_t)need < room) {
            b->len += (size_t)need;
            return;
        }
        buffer_reserve(b, (size_t)need + 1);
    }
}

void buffer_drop(struct buffer *b, size_t count) {
    if (count > b->len) count = b->len;
    b->len -= count;
    if (b->len) memmove(b->data, b->data + count, b->len);
}

void buffer_free(struct buffer *b) {
    free(b->data);
    *b = (struct buffer){0};
}
