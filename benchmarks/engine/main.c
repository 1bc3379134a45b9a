// A mock of an OpenAI-compatible runtime whose speed is never the limit: what is measured is its client.
#include "server.h"

static struct engine engine;

int main(int argc, char **argv) {
    engine.options = read_options(argc, argv);
    engine.slots.count = (size_t)engine.options.slots;
    return serve(&engine);
}
