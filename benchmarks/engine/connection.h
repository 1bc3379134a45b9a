// One client. It has one request in work at a time; what it sends ahead waits in `in`.
#ifndef CONNECTION_H
#define CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "request.h"
#include "row.h"

#define NOT_IN_HEAP SIZE_MAX

enum stage { STAGE_READING, STAGE_WAITING, STAGE_WORKING };

struct connection {
    int fd;
    enum stage stage;
    bool close_after;  // the answer in `out` is the last
    bool wants_out;    // epoll tells when there is room again
    struct buffer in, out;
    size_t sent;       // bytes of `out` that are gone
    struct request request;
    struct row row;
    uint64_t service_ns, due_ns;
    size_t heap_place; // of a working one
    struct connection *before, *behind; // of a waiting one; `behind` also links those to be freed
};

#endif
