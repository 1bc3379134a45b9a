// Reads HTTP/1.1 requests out of a buffer, however the bytes arrive.
#ifndef REQUEST_H
#define REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "buffer.h"

enum parsed {
    PARSED_MORE,      // not all of it is here yet
    PARSED_WHOLE,     // `body` and `used` are right
    PARSED_CONTINUE,  // not all of it is here, and the client waits for "100 Continue" (said once)
    PARSED_BAD,       // no HTTP: answer 400 and close
    PARSED_TOO_LARGE, // answer 413 and close
};

// The request at the start of a buffer. All places are offsets into it. Zeroed for each request.
struct request {
    size_t head;         // length of the head, 0 while it is not whole
    bool post;
    size_t path, path_len; // without the query
    size_t query, query_len;
    bool chunked, close, expects;
    size_t body;         // bytes of the body that are in place behind the head
    size_t length;       // content-length
    size_t raw;          // chunked: where the next chunk begins
    size_t used;         // bytes of the buffer that are this request
};

// Call again with the same request when bytes were added.
enum parsed request_parse(struct request *r, struct buffer *b);

bool request_is(const struct request *r, const struct buffer *b, const char *path);

#endif
