// What the engine knows of a row: enough to answer it and to decide its time.
#ifndef ROW_H
#define ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_MARK = 96 };

enum row_kind { ROW_CHAT, ROW_COMPLETION, ROW_EMBEDDING };

struct row {
    enum row_kind kind;
    int status;                // 200, or how it is refused
    char mark[MAX_MARK + 1];   // "[[...]]" of its body, "" when it has none
    uint64_t hash;             // of the mark, else of the body: what is slow is slow for every client
    size_t prompt_tokens;
    size_t inputs;             // of an embedding
};

void row_read(struct row *row, enum row_kind kind, const char *body, size_t len);

#endif
