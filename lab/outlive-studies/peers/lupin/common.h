/* What the programs beside the study `lupin-table3` share: memory, files, threads, and the report of what the work took.
 *
 * Each is started as
 *
 *   PROGRAM THREADS REPORT RESULT ...
 *
 *   THREADS  how many threads work
 *   REPORT   the file that a line is written to: "done WALL CPU", the seconds of the work
 *   RESULT   the file that the result is written to
 *
 * and says on standard error what went wrong.
 */

#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Functions whose loops are compiled for any processor, and for those with vectors of 256 bits. */
#if defined(__x86_64__) && defined(__gnu_linux__)
#define WIDEST __attribute__((target_clones("avx2", "default")))
#else
#define WIDEST
#endif

enum { MOST_THREADS = 4096 };

static inline _Noreturn void fail(const char *what, const char *which) {
    fprintf(stderr, "%s %s: %s\n", what, which, strerror(errno));
    exit(1);
}

static inline _Noreturn void refuse(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(2);
}

static inline void *allocate(size_t bytes) {
    void *at = malloc(bytes ? bytes : 1);
    if (!at) fail("allocating", "memory");
    return at;
}

static inline void *allocate_zeroed(size_t count, size_t each) {
    void *at = calloc(count ? count : 1, each);
    if (!at) fail("allocating", "memory");
    return at;
}

static inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

static inline unsigned threads_of(const char *text) {
    char *end;
    unsigned long threads = strtoul(text, &end, 10);
    if (*end || threads < 1 || threads > MOST_THREADS) refuse("the number of threads is not valid");
    return (unsigned)threads;
}

/* Files. */

static inline int open_file(const char *path, struct stat *found) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, found) != 0) fail("opening", path);
    return file;
}

static inline void read_at(int file, void *into, size_t len, size_t at, const char *path) {
    for (char *to = into; len > 0;) {
        ssize_t got = pread(file, to, len, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("reading", path);
        if (got == 0) refuse("a file is shorter than it was");
        to += got;
        at += (size_t)got;
        len -= (size_t)got;
    }
}

/* A file of words and numbers of 64 bits, as they stand in memory, of which there are at least `words`. */
static inline const uint64_t *read_words(const char *path, size_t words, size_t *count) {
    struct stat found;
    int file = open_file(path, &found);
    size_t bytes = (size_t)found.st_size;
    if (bytes < words * 8 || bytes % 8 != 0) refuse("an input is too short");
    uint64_t *all = allocate(bytes);
    read_at(file, all, bytes, 0, path);
    close(file);
    *count = bytes / 8;
    return all;
}

static inline FILE *begin_result(const char *path) {
    FILE *out = fopen(path, "we");
    if (!out) fail("making", path);
    return out;
}

static inline void put(FILE *out, const void *bytes, size_t len) {
    /* What goes wrong is known in the end. */
    fwrite(bytes, 1, len, out);
}

static inline void end_result(FILE *out, const char *path) {
    bool wrong = ferror(out);
    if (fclose(out) != 0 || wrong) fail("writing", path);
}

/* Time. */

struct moment {
    double wall;
    double cpu;
};

static inline struct moment now(void) {
    struct timespec wall, cpu;
    clock_gettime(CLOCK_MONOTONIC, &wall);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return (struct moment){(double)wall.tv_sec + (double)wall.tv_nsec * 1e-9,
                           (double)cpu.tv_sec + (double)cpu.tv_nsec * 1e-9};
}

static inline void report(const char *path, struct moment began, struct moment ended) {
    FILE *out = begin_result(path);
    fprintf(out, "done %.9f %.9f\n", ended.wall - began.wall, ended.cpu - began.cpu);
    end_result(out, path);
}

/* Threads. */

typedef void work(void *shared, unsigned thread);

struct worker {
    work *work;
    void *shared;
    unsigned thread;
};

static inline void *be_worker(void *worker) {
    struct worker *me = worker;
    me->work(me->shared, me->thread);
    return NULL;
}

/* Does `work` with so many threads, of which this is one, and waits for all. */
static inline void in_threads(unsigned threads, work *work, void *shared) {
    pthread_t *handles = allocate(threads * sizeof *handles);
    struct worker *workers = allocate(threads * sizeof *workers);
    for (unsigned thread = 0; thread < threads; thread++) {
        workers[thread] = (struct worker){work, shared, thread};
        if (thread > 0 && (errno = pthread_create(&handles[thread], NULL, be_worker, &workers[thread])) != 0)
            fail("starting", "a thread");
    }
    be_worker(&workers[0]);
    for (unsigned thread = 1; thread < threads; thread++) pthread_join(handles[thread], NULL);
    free(handles);
    free(workers);
}

/* Takes the next of `end` things, up to `each` of them; whether there are any. */
static inline bool claim(atomic_size_t *next, size_t each, size_t end, size_t *from, size_t *to) {
    *from = atomic_fetch_add_explicit(next, each, memory_order_relaxed);
    if (*from >= end) return false;
    *to = least(*from + each, end);
    return true;
}

#endif
