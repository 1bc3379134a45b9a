#include "row.h"

#include <string.h>

static uint64_t hash_of(const char *bytes, size_t len) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    h ^= h >> 32; // FNV's low bits follow the last byte: mix, or "every" would see a pattern
    h *= 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static bool find_mark(struct row *row, const char *body, size_t len) {
    const char *start = memmem(body, len, "[[", 2);
    if (!start) return false;
    size_t left = len - (size_t)(start - body);
    const char *end = memmem(start, left < MAX_MARK ? left : MAX_MARK, "]]", 2);
    if (!end) return false;
    size_t n = (size_t)(end - start) + 2;
    for (size_t i = 0; i < n; i++) // it goes into JSON as it is
        if (start[i] < 0x20 || start[i] > 0x7e || start[i] == '"' || start[i] == '\\') return false;
    memcpy(row->mark, start, n);
    row->mark[n] = 0;
    return true;
}

// A string or one list of token ids is one input; a list of strings or of lists has as many as elements.
static size_t count_inputs(const char *body, size_t len) {
    const char *p = memmem(body, len, "\"input\"", 7), *end = body + len;
    if (!p) return 1;
    for (p += 7; p < end && (*p == ' ' || *p == ':' || *p == '\n' || *p == '\t'); p++) {}
    if (p >= end || *p != '[') return 1;
    size_t count = 0;
    int depth = 0;
    for (bool text = false; p < end; p++) {
        if (text) {
            if (*p == '\\') p++;
            else if (*p == '"') text = false;
        } else if (*p == '"') {
            text = true;
            count += depth == 1;
        } else if (*p == '[') {
            count += depth++ == 1;
        } else if (*p == ']' && --depth == 0) {
            break;
        }
    }
    return count ? count : 1;
}

void row_read(struct row *row, enum row_kind kind, const char *body, size_t len) {
    row->kind = kind;
    row->status = 200;
    row->mark[0] = 0;
    if (find_mark(row, body, len)) row->hash = hash_of(row->mark, strlen(row->mark));
    else row->hash = hash_of(body, len < 4096 ? len : 4096) ^ len;
    row->prompt_tokens = len / 4 + 1;
    row->inputs = kind == ROW_EMBEDDING ? count_inputs(body, len) : 1;
}
