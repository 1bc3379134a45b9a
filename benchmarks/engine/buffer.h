// A byte string that grows. `data` may move whenever bytes are added: keep offsets, not pointers.
#ifndef BUFFER_H
#define BUFFER_H

#include <stdarg.h>
#include <stddef.h>

struct buffer {
    char *data;
    size_t len;
    size_t cap;
};

// Each ends the process when there is no memory left: a mock has nobody to tell.
void *checked_alloc(size_t bytes);
void *checked_realloc(void *old, size_t bytes);

void buffer_reserve(struct buffer *b, size_t more);
void buffer_add(struct buffer *b, const void *bytes, size_t count);
void buffer_text(struct buffer *b, const char *text);
void buffer_fill(struct buffer *b, char byte, size_t count);
void buffer_format(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Drop the first `count` bytes.
void buffer_drop(struct buffer *b, size_t count);
void buffer_free(struct buffer *b);

#endif
