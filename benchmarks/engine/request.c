#include "request.h"

#include <string.h>
#include <strings.h>

enum { MAX_HEAD = 64 * 1024, MAX_CHUNK_LINE = 256 };
static const size_t MAX_BODY = (size_t)256 << 20;

static bool is_header(const char *line, size_t len, const char *name) {
    size_t n = strlen(name);
    return len > n && line[n] == ':' && strncasecmp(line, name, n) == 0;
}

// The number at the start of `text`: PARSED_BAD when there is none, PARSED_TOO_LARGE above MAX_BODY.
static enum parsed read_number(const char *text, size_t len, unsigned base, size_t *value) {
    size_t i = 0, found = 0;
    for (; i < len; i++) {
        char c = text[i];
        unsigned digit = c >= '0' && c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 32) - 'a') + 10;
        if ((c < '0' || c > '9') && ((c | 32) < 'a' || (c | 32) > 'f')) break;
        if (digit >= base) break;
        found = found * base + digit;
        if (found > MAX_BODY) return PARSED_TOO_LARGE;
    }
    *value = found;
    return i ? PARSED_WHOLE : PARSED_BAD;
}

static bool value_has(const char *line, size_t len, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= len; i++)
        if (strncasecmp(line + i, word, n) == 0) return true;
    return false;
}

static bool parse_first_line(struct request *r, const char *head, size_t len) {
    const char *space = memchr(head, ' ', len);
    if (!space) return false;
    size_t method = (size_t)(space - head);
    const char *path = space + 1, *end = memchr(path, ' ', len - method - 1);
    if (!end || *path != '/') return false;
    r->post = method == 4 && memcmp(head, "POST", 4) == 0;
    const char *mark = memchr(path, '?', (size_t)(end - path));
    r->path = (size_t)(path - head);
    r->path_len = (size_t)((mark ? mark : end) - path);
    if (mark) {
        r->query = (size_t)(mark + 1 - head);
        r->query_len = (size_t)(end - mark - 1);
    }
    return (size_t)(end - head) + 9 <= len && memcmp(end, " HTTP/1.", 8) == 0;
}

static enum parsed parse_head(struct request *r, const char *head, size_t len) {
    const char *line = memmem(head, len, "\r\n", 2);
    if (!line || !parse_first_line(r, head, (size_t)(line - head))) return PARSED_BAD;
    const char *stop = head + len - 2; // the empty line
    for (line += 2; line < stop;) {
        const char *end = memmem(line, (size_t)(head + len - line), "\r\n", 2);
        if (!end) return PARSED_BAD;
        size_t n = (size_t)(end - line);
        if (is_header(line, n, "content-length")) {
            const char *digits = line + 15;
            while (digits < end && *digits == ' ') digits++;
            enum parsed found = read_number(digits, (size_t)(end - digits), 10, &r->length);
            if (found != PARSED_WHOLE) return found;
        } else if (is_header(line, n, "transfer-encoding")) {
            r->chunked = value_has(line, n, "chunked");
        } else if (is_header(line, n, "connection")) {
            r->close = value_has(line, n, "close");
        } else if (is_header(line, n, "expect")) {
            r->expects = value_has(line, n, "100-continue");
        }
        line = end + 2;
    }
    r->head = len;
    r->raw = len;
    return PARSED_WHOLE;
}

// Move chunks that are whole to where the body belongs, right behind the head.
static enum parsed parse_chunks(struct request *r, struct buffer *b) {
    for (;;) {
        size_t left = b->len - r->raw;
        const char *line = b->data + r->raw;
        const char *end = left ? memmem(line, left < MAX_CHUNK_LINE ? left : MAX_CHUNK_LINE, "\r\n", 2) : NULL;
        if (!end) return left < MAX_CHUNK_LINE ? PARSED_MORE : PARSED_BAD;
        size_t size;
        enum parsed found = read_number(line, (size_t)(end - line), 16, &size);
        if (found != PARSED_WHOLE) return found;
        if (size > MAX_BODY - r->body) return PARSED_TOO_LARGE;
        size_t data = (size_t)(end - b->data) + 2;
        if (b->len - data < size + 2) return PARSED_MORE; // no trailers: nobody sends them
        if (memcmp(b->data + data + size, "\r\n", 2) != 0) return PARSED_BAD;
        memmove(b->data + r->head + r->body, b->data + data, size);
        r->body += size;
        r->raw = data + size + 2;
        if (size == 0) {
            r->used = r->raw;
            return PARSED_WHOLE;
        }
    }
}

enum parsed request_parse(struct request *r, struct buffer *b) {
    if (!r->head) {
        const char *end = b->len ? memmem(b->data, b->len < MAX_HEAD ? b->len : MAX_HEAD, "\r\n\r\n", 4) : NULL;
        if (!end) return b->len < MAX_HEAD ? PARSED_MORE : PARSED_BAD;
        enum parsed found = parse_head(r, b->data, (size_t)(end - b->data) + 4);
        if (found != PARSED_WHOLE) return found;
    }
    if (r->chunked) {
        enum parsed found = parse_chunks(r, b);
        if (found != PARSED_MORE) return found;
    } else if (b->len - r->head >= r->length) {
        r->body = r->length;
        r->used = r->head + r->length;
        return PARSED_WHOLE;
    } else {
        buffer_reserve(b, r->head + r->length - b->len);
    }
    if (r->expects && b->len == r->head) {
        r->expects = false;
        return PARSED_CONTINUE;
    }
    return PARSED_MORE;
}

bool request_is(const struct request *r, const struct buffer *b, const char *path) {
    return strlen(path) == r->path_len && memcmp(b->data + r->path, path, r->path_len) == 0;
}
