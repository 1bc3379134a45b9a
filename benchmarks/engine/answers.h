// Writes HTTP answers.
#ifndef ANSWERS_H
#define ANSWERS_H

#include "buffer.h"
#include "options.h"
#include "row.h"

void answer(struct buffer *out, int status, const char *type, const char *body, size_t len, bool close);
void answer_error(struct buffer *out, int status, const char *message, bool close);
// The answer of a row: its mark, its hash and filling, in the form of its endpoint.
void answer_row(struct buffer *out, const struct row *row, const struct options *o, bool close);
void answer_models(struct buffer *out, const struct options *o, bool close);
void answer_paths(struct buffer *out, bool close);

#endif
