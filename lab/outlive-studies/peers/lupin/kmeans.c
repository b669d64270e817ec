/* Groups points around centres (Lloyd's algorithm).
 *
 * In an iteration threads take pieces of the points and add up, for each centre, those that are nearest to it (of several
 * equally near, to the first), in sums of their own. One of them puts the sums together and moves the centres, while the
 * others wait.
 *
 * kmeans THREADS REPORT RESULT POINTS CENTRES ITERATIONS
 *
 *   POINTS   how many, of how many coordinates (64 bits each), the coordinates of all points
 *   CENTRES  the same of the centres to begin with
 *
 * The result has the coordinates of all centres, and how many points each had in the last iteration (64 bits each).
 */

#include "common.h"
#include <math.h>

enum { LANES = 4, PIECE = 4096 };

typedef double lanes __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef int64_t bits __attribute__((vector_size(8 * LANES)));

/* Of eight centres the first coordinates, then the second ones. */
struct eight {
    lanes low, high;
};

struct sums {
    double *sums;
    uint64_t *counts;
};

static struct {
    const double *points;
    size_t count, dimensions, clusters;
    double *centres;
    struct eight *packed;
    unsigned long iterations;
    unsigned threads;
    struct sums *sums;
    atomic_size_t next;
    pthread_barrier_t barrier;
} all;

/* Where there is no centre, there is one that is infinitely far. */
static void pack(void) {
    for (size_t at = 0; at < (all.clusters + 7) / 8 * 8; at++) {
        double *block = (double *)(all.packed + at / 8 * all.dimensions);
        for (size_t axis = 0; axis < all.dimensions; axis++)
            block[axis * 8 + at % 8] = at < all.clusters ? all.centres[at * all.dimensions + axis] : INFINITY;
    }
}

/* Replaces those of the lanes that are named. */
static inline void replace(lanes *these, const bits *which, const lanes *by) {
    *these = (lanes)((*which & (bits)*by) | (~*which & (bits)*these));
}

WIDEST static void add_points(const double *points, size_t count, size_t dimensions, const struct eight *packed,
                              size_t blocks, struct sums sums) {
    const lanes far = {INFINITY, INFINITY, INFINITY, INFINITY};
    for (const double *point = points; point < points + count * dimensions; point += dimensions) {
        struct eight best = {far, far}, which = {{0}, {0}};
        const struct eight *at = packed;
        for (size_t block = 0; block < blocks; block++) {
            struct eight square = {{0}, {0}};
            for (size_t axis = 0; axis < dimensions; axis++, at++) {
                lanes low = point[axis] - at->low, high = point[axis] - at->high;
                square.low += low * low;
                square.high += high * high;
            }
            double number = (double)block;
            lanes here = {number, number, number, number};
            bits low = square.low < best.low, high = square.high < best.high;
            replace(&best.low, &low, &square.low);
            replace(&best.high, &high, &square.high);
            replace(&which.low, &low, &here);
            replace(&which.high, &high, &here);
        }
        double nearest = INFINITY;
        size_t centre = 0;
        for (size_t lane = 0; lane < 8; lane++) {
            double square = lane < LANES ? best.low[lane] : best.high[lane - LANES];
            double block = lane < LANES ? which.low[lane] : which.high[lane - LANES];
            size_t number = (size_t)block * 8 + lane;
            if (square < nearest || (square == nearest && number < centre)) nearest = square, centre = number;
        }
        sums.counts[centre]++;
        for (size_t axis = 0; axis < dimensions; axis++) sums.sums[centre * dimensions + axis] += point[axis];
    }
}

/* Puts the sums together and moves the centres; one without points stays. */
static void move(void) {
    struct sums first = all.sums[0];
    size_t numbers = all.clusters * all.dimensions;
    for (unsigned thread = 1; thread < all.threads; thread++) {
        for (size_t at = 0; at < numbers; at++) first.sums[at] += all.sums[thread].sums[at];
        for (size_t at = 0; at < all.clusters; at++) first.counts[at] += all.sums[thread].counts[at];
    }
    for (size_t at = 0; at < numbers; at++) {
        uint64_t count = first.counts[at / all.dimensions];
        if (count > 0) all.centres[at] = first.sums[at] / (double)count;
    }
    pack();
    atomic_store(&all.next, 0);
}

static void group(void *shared, unsigned thread) {
    (void)shared;
    size_t numbers = all.clusters * all.dimensions;
    struct sums sums = {allocate(numbers * sizeof(double)), allocate(all.clusters * sizeof(uint64_t))};
    all.sums[thread] = sums;
    for (unsigned long iteration = 0; iteration < all.iterations; iteration++) {
        memset(sums.sums, 0, numbers * sizeof(double));
        memset(sums.counts, 0, all.clusters * sizeof(uint64_t));
        for (size_t from, to; claim(&all.next, PIECE, all.count, &from, &to);)
            add_points(all.points + from * all.dimensions, to - from, all.dimensions, all.packed,
                       (all.clusters + 7) / 8, sums);
        pthread_barrier_wait(&all.barrier);
        if (thread == 0) move();
        pthread_barrier_wait(&all.barrier);
    }
}

/* The numbers of a file of points or centres, which is said by its first two words. */
static double *numbers_of(const char *path, size_t *many, size_t *dimensions) {
    size_t count;
    const uint64_t *words = read_words(path, 2, &count);
    *many = words[0];
    *dimensions = words[1];
    if (*many == 0 || *dimensions == 0 || count != 2 + *many * *dimensions) refuse("the length of an input does not match its header");
    return (double *)(words + 2);
}

int main(int count, char **arguments) {
    if (count != 7) refuse("kmeans THREADS REPORT RESULT POINTS CENTRES ITERATIONS");
    all.threads = threads_of(arguments[1]);
    size_t dimensions;
    all.points = numbers_of(arguments[4], &all.count, &all.dimensions);
    all.centres = numbers_of(arguments[5], &all.clusters, &dimensions);
    if (dimensions != all.dimensions) refuse("points and centres differ in their numbers of coordinates");
    all.iterations = strtoul(arguments[6], NULL, 10);
    all.packed = aligned_alloc(64, ((all.clusters + 7) / 8 * all.dimensions * sizeof *all.packed + 63) / 64 * 64);
    if (!all.packed) fail("allocating", "memory");
    all.sums = allocate(all.threads * sizeof *all.sums);
    if ((errno = pthread_barrier_init(&all.barrier, NULL, all.threads)) != 0) fail("making", "a barrier");
    struct moment began = now();
    pack();
    in_threads(all.threads, group, NULL);
    struct moment ended = now();
    FILE *out = begin_result(arguments[3]);
    put(out, all.centres, all.clusters * all.dimensions * sizeof(double));
    put(out, all.sums[0].counts, all.clusters * sizeof(uint64_t));
    end_result(out, arguments[3]);
    report(arguments[2], began, ended);
    return 0;
}
