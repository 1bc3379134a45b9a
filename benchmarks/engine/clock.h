// Time as the engine knows it: nanoseconds of the monotonic clock.
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000.0

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

// The same moment on the clock of files and of other processes, in seconds.
static inline double wall_seconds(uint64_t monotonic_ns) {
    if (monotonic_ns == 0) return 0;
    double offset = (double)clock_ns(CLOCK_REALTIME) - (double)now_ns();
    return ((double)monotonic_ns + offset) / 1e9;
}

#endif
