/* The runtime of recorded programs: what code that was compiled with -fsanitize=thread calls, instead of the sanitizer's own.
 * It writes what the threads do to a trace (the format is in the documentation of outlive_machine::trace). See docs/recording.md.
 *
 * One translation unit, so that nothing but what programs and libraries are to see is visible. */

#define _GNU_SOURCE
#include "state.h" /* whoever is included needs those before */
#include "stream.h"
#include "heap.h"
#include "access.h"
#include "signals.h"
#include "atomics.h"
#include "sync.h"
#include "threads.h"
#include "c11.h"
#include "life.h"
