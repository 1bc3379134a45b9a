// Sockets: accept, read, write, on one thread.
#ifndef SERVER_H
#define SERVER_H

#include "engine.h"

// Serve until SIGTERM or SIGINT. Gives the process's exit code.
int serve(struct engine *e);

#endif
