// What the engine is told on its command line.
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stddef.h>

struct options {
    int port;                 // 0: any free one
    const char *model;        // its id in /v1/models
    const char *ready_file;   // written with the URL once it listens
    long slots;               // rows it works on at once
    long queue;               // rows that may wait for a slot; one more is answered 503. -1: no bound
    double latency_ms;        // time of a row in its slot
    double spread;            // 0.5: from half to one and a half of the latency, by the row
    long slow_every;          // one row in so many is a straggler, by the row: the same rows for every client
    double slow_ms;           // time of a straggler
    long fail_every;          // each so-manieth row that is answered fails, whichever it is: a second try goes well
    int fail_status;
    size_t reply_bytes;       // length of an answer's text, at least its mark's
    int dimensions;           // of an embedding
};

// Ends the process with a message when the line makes no sense.
struct options read_options(int argc, char **argv);

#endif
