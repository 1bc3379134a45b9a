#include "answers.h"

#include <inttypes.h>
#include <string.h>

#define JSON "application/json"

static const char *reason(int status) {
    switch (status) {
        case 200: return "OK";
        case 400: return "Bad Request";
        case 404: return "Not Found";
        case 413: return "Content Too Large";
        case 429: return "Too Many Requests";
        case 500: return "Internal Server Error";
        case 503: return "Service Unavailable";
        default: return "Status";
    }
}

static void head(struct buffer *out, int status, const char *type, size_t len, bool close) {
    buffer_format(out, "HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %zu\r\n%s%s\r\n", status, reason(status),
                  type, len, status == 503 || status == 429 ? "retry-after: 1\r\n" : "",
                  close ? "connection: close\r\n" : "");
}

void answer(struct buffer *out, int status, const char *type, const char *body, size_t len, bool close) {
    head(out, status, type, len, close);
    buffer_add(out, body, len);
}

void answer_error(struct buffer *out, int status, const char *message, bool close) {
    struct buffer body = {0};
    buffer_format(&body, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":%d}}", message, reason(status),
                  status);
    answer(out, status, JSON, body.data, body.len, close);
    buffer_free(&body);
}

static void embeddings(struct buffer *body, const struct row *row, const struct options *o) {
    buffer_text(body, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < row->inputs; i++) {
        buffer_format(body, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":[", i ? "," : "", i);
        for (int d = 0; d < o->dimensions; d++) {
            uint64_t bits = (row->hash + i) * 0x9e3779b97f4a7c15u * (uint64_t)(d + 1);
            buffer_format(body, "%s0.%04u", d ? "," : "", (unsigned)(bits >> 40) % 10000u);
        }
        buffer_text(body, "]}");
    }
    buffer_format(body, "],\"model\":\"%s\",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", o->model,
                  row->prompt_tokens, row->prompt_tokens);
}

static void text(struct buffer *body, const struct row *row, const struct options *o) {
    bool chat = row->kind == ROW_CHAT;
    buffer_format(body, "{\"id\":\"%s-%016" PRIx64 "\",\"object\":\"%s\",\"created\":1700000000,\"model\":\"%s\",\"choices\":"
                  "[{\"index\":0,%s",
                  chat ? "chatcmpl" : "cmpl", row->hash, chat ? "chat.completion" : "text_completion", o->model,
                  chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"" : "\"text\":\"");
    size_t mark = strlen(row->mark);
    buffer_add(body, row->mark, mark);
    if (o->reply_bytes > mark) buffer_fill(body, 'x', o->reply_bytes - mark);
    size_t tokens = o->reply_bytes / 4 + 1;
    buffer_format(body, "\"%s,\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":%zu,"
                  "\"completion_tokens\":%zu,\"total_tokens\":%zu}}",
                  chat ? ",\"refusal\":null,\"tool_calls\":[]}" : "", row->prompt_tokens, tokens,
                  row->prompt_tokens + tokens);
}

void answer_row(struct buffer *out, const struct row *row, const struct options *o, bool close) {
    if (row->status != 200) {
        answer_error(out, row->status, "the mock was told to fail this request", close);
        return;
    }
    struct buffer body = {0};
    if (row->kind == ROW_EMBEDDING) embeddings(&body, row, o);
    else text(&body, row, o);
    answer(out, 200, JSON, body.data, body.len, close);
    buffer_free(&body);
}

void answer_models(struct buffer *out, const struct options *o, bool close) {
    struct buffer body = {0};
    buffer_format(&body, "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":1700000000,"
                  "\"owned_by\":\"vllm\",\"root\":\"%s\",\"parent\":null,\"max_model_len\":32768}]}", o->model, o->model);
    answer(out, 200, JSON, body.data, body.len, close);
    buffer_free(&body);
}

void answer_paths(struct buffer *out, bool close) {
    static const char paths[] = "{\"paths\":{\"/v1/chat/completions\":{},\"/v1/completions\":{},\"/v1/embeddings\":{}}}";
    answer(out, 200, JSON, paths, sizeof paths - 1, close);
}
