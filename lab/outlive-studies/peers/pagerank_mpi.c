/* PageRank as one writes it with MPI: bulk-synchronous, its work dealt out once, its failures met by a checkpoint.
 * A rival of the study `modc-fig4` (MODC, section 5.3), on one machine.
 *
 * Every rank maps the graph. The two vectors stand in a window of shared memory, so that nobody sends anybody a
 * rank; an iteration ends with a reduction of two numbers, which is its barrier. Sets of rows are dealt round robin.
 * After every few iterations each rank copies its rows of the vector into a checkpoint in a file, of which there are two
 * by turns, so that one is whole at any time. If a rank dies the whole job does; started again, it goes on from the
 * newest checkpoint.
 *
 * pagerank_mpi GRAPH ITERATIONS DAMPING SET CHECKPOINT EVERY REPORT RANKS [DIES IN]
 *
 *   GRAPH       "outlgrp1", vertices, edges, where each row begins and the last one ends (64 bits each), the sources
 *               of all rows, how many edges leave each vertex (32 bits each)
 *   SET         how many rows are dealt at a time
 *   CHECKPOINT  the file; EVERY: after how many iterations one is made, 0 for none
 *   REPORT      a file to which a line is added: "done ITERATIONS SECONDS RESIDUAL CHECKPOINTS FROM", or, by a rank
 *               that dies, "died ITERATION SECONDS"; seconds are those of iterations and checkpoints, made and read
 *   RANKS       the file that all ranks are written to, 64 bits each
 *   DIES IN     rank DIES kills itself in iteration IN, the first of which is 1, when it has computed its rows
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Rows that are added up by themselves: a sum of millions of small numbers would lose them. */
enum { BLOCK = 1024 };

static const char MAGIC_OF_GRAPH[8] = "outlgrp1";
static const char MAGIC_OF_CHECKPOINT[8] = "outlchk1";

struct graph {
    uint64_t vertices;
    uint64_t edges;
    const uint64_t *begins;
    const uint32_t *sources;
    const uint32_t *leaving;
};

/* What stands before the vector of a checkpoint, written last. */
struct checkpoint {
    char magic[8];
    uint64_t vertices;
    uint64_t iteration;
    double lost;
};

static int rank, ranks;

static void fail(const char *what, const char *which) {
    fprintf(stderr, "pagerank_mpi: %s %s: %s\n", what, which, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void refuse(const char *why) {
    fprintf(stderr, "pagerank_mpi: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static struct graph map_graph(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat found;
    if (file < 0 || fstat(file, &found) != 0) fail("opening", path);
    if (found.st_size < 24) refuse("the graph is too short");
    const char *at = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) fail("mapping", path);
    close(file);
    const uint64_t *words = (const uint64_t *)at;
    struct graph graph = {.vertices = words[1], .edges = words[2], .begins = words + 3};
    uint64_t bytes = 24 + (graph.vertices + 1) * 8 + graph.edges * 4 + graph.vertices * 4;
    if (memcmp(at, MAGIC_OF_GRAPH, 8) != 0 || bytes != (uint64_t)found.st_size)
        refuse("the file is not a graph");
    graph.sources = (const uint32_t *)(graph.begins + graph.vertices + 1);
    graph.leaving = graph.sources + graph.edges;
    return graph;
}

static inline double sum(const uint32_t *source, const uint32_t *end, const double *brings) {
    double a = 0, b = 0, c = 0, d = 0, rest = 0;
    for (; end - source >= 4; source += 4) {
        a += brings[source[0]];
        b += brings[source[1]];
        c += brings[source[2]];
        d += brings[source[3]];
    }
    for (; source < end; source++) rest += brings[*source];
    return (a + b) + (c + d) + rest;
}

/* Computes the rows from `first` to before `last`; adds to what they changed and to the ranks that no edge leaves. */
static void compute(const struct graph *graph, uint64_t first, uint64_t last, double damping, double base,
                    const double *restrict brings, double *restrict next, double found[2]) {
    for (uint64_t from = first; from < last; from += BLOCK) {
        uint64_t to = from + BLOCK < last ? from + BLOCK : last;
        double residual = 0, lost = 0;
        const uint32_t *source = graph->sources + graph->begins[from];
        for (uint64_t row = from; row < to; row++) {
            const uint32_t *end = graph->sources + graph->begins[row + 1];
            double now = base + damping * sum(source, end, brings);
            source = end;
            uint32_t leaving = graph->leaving[row];
            double shares = leaving > 1 ? leaving : 1;
            residual += fabs(now - brings[row] * shares);
            if (leaving == 0) lost += now;
            next[row] = now / shares;
        }
        found[0] += residual;
        found[1] += lost;
    }
}

/* The next set of this rank's; its rows in `rows`. */
static int next_set(uint64_t *set, uint64_t size, uint64_t vertices, uint64_t rows[2]) {
    rows[0] = *set * size;
    if (rows[0] >= vertices) return 0;
    rows[1] = rows[0] + size < vertices ? rows[0] + size : vertices;
    *set += (uint64_t)ranks;
    return 1;
}

static void write_all(int file, const void *from, size_t bytes, off_t at, const char *path) {
    for (const char *next = from; bytes > 0;) {
        ssize_t written = pwrite(file, next, bytes, at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) fail("writing", path);
        next += written, at += written, bytes -= (size_t)written;
    }
}

static void read_all(int file, void *to, size_t bytes, off_t at, const char *path) {
    for (char *next = to; bytes > 0;) {
        ssize_t got = pread(file, next, bytes, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) fail("reading", path);
        next += got, at += got, bytes -= (size_t)got;
    }
}

/* Where the checkpoints are, by turns. */
static off_t place(uint64_t turn, uint64_t vertices) {
    return (off_t)((turn % 2) * (4096 + vertices * 8));
}

/* Writes this rank's rows of `vector`, and, when all have, that it is whole. */
static void make_checkpoint(int file, const char *path, uint64_t turn, struct checkpoint head, const double *vector,
                            uint64_t size) {
    off_t at = place(turn, head.vertices);
    uint64_t set = (uint64_t)rank, rows[2];
    while (next_set(&set, size, head.vertices, rows))
        write_all(file, vector + rows[0], (rows[1] - rows[0]) * 8, at + 4096 + (off_t)(rows[0] * 8), path);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) write_all(file, &head, sizeof head, at, path);
}

/* The newest checkpoint that is whole, and its turn; its iteration is 0 if there is none. */
static struct checkpoint find_checkpoint(int file, uint64_t vertices, uint64_t *turn) {
    struct checkpoint best = {.iteration = 0};
    for (uint64_t each = 0; each < 2; each++) {
        struct checkpoint head;
        if (pread(file, &head, sizeof head, place(each, vertices)) != (ssize_t)sizeof head) continue;
        if (memcmp(head.magic, MAGIC_OF_CHECKPOINT, 8) != 0 || head.vertices != vertices) continue;
        if (head.iteration > best.iteration) best = head, *turn = each;
    }
    return best;
}

static void report(const char *path, const char *line) {
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0 || write(file, line, strlen(line)) != (ssize_t)strlen(line)) fail("writing", path);
    close(file);
}

static uint64_t number(const char *text, const char *what) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != 0 || end == text) refuse(what);
    return value;
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count != 9 && count != 11)
        refuse("usage: pagerank_mpi GRAPH ITERATIONS DAMPING SET CHECKPOINT EVERY REPORT RANKS [DIES IN]");
    struct graph graph = map_graph(words[1]);
    uint64_t n = graph.vertices, iterations = number(words[2], "ITERATIONS is a number");
    double damping = strtod(words[3], NULL);
    uint64_t size = number(words[4], "SET is a number");
    const char *path = words[5];
    uint64_t every = number(words[6], "EVERY is a number");
    const char *report_path = words[7], *ranks_path = words[8];
    int dies = count == 11 ? (int)number(words[9], "DIES is a rank") : -1;
    uint64_t dies_in = count == 11 ? number(words[10], "IN is an iteration") : 0;
    if (size == 0 || n == 0) refuse("there are no rows");

    MPI_Comm here;
    int together;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &together);
    if (together != ranks) refuse("its ranks share their vectors, so they must be on one machine");
    MPI_Win window;
    double *vectors[2];
    MPI_Aint bytes = rank == 0 ? (MPI_Aint)(2 * n * sizeof(double)) : 0;
    MPI_Win_allocate_shared(bytes, sizeof(double), MPI_INFO_NULL, here, &vectors[0], &window);
    int unit;
    MPI_Win_shared_query(window, 0, &bytes, &unit, &vectors[0]);
    vectors[1] = vectors[0] + n;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);

    int file = -1;
    if (every > 0) {
        file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (file < 0) fail("opening", path);
    }
    double even = 1.0 / (double)n;
    uint64_t set = (uint64_t)rank, rows[2];
    /* A vector that is there before the time is taken, as a run in a pod has it. */
    double dangling = 0, lost;
    while (next_set(&set, size, n, rows)) {
        for (uint64_t row = rows[0]; row < rows[1]; row++) {
            uint32_t leaving = graph.leaving[row];
            vectors[0][row] = even / (leaving > 1 ? leaving : 1);
            vectors[1][row] = 0;
            if (leaving == 0) dangling += 1;
        }
    }
    MPI_Allreduce(&dangling, &lost, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    lost *= even;
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);

    double began = MPI_Wtime();
    uint64_t turn = 1, from = 0, checkpoints = 0;
    if (every > 0) {
        struct checkpoint found = find_checkpoint(file, n, &turn);
        /* All decide before anybody writes. */
        MPI_Barrier(MPI_COMM_WORLD);
        if (found.iteration > 0) {
            from = found.iteration;
            lost = found.lost;
            double *vector = vectors[from % 2];
            set = (uint64_t)rank;
            while (next_set(&set, size, n, rows))
                read_all(file, vector + rows[0], (rows[1] - rows[0]) * 8,
                         place(turn, n) + 4096 + (off_t)(rows[0] * 8), path);
            MPI_Win_sync(window);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Win_sync(window);
        }
    }
    double residual = INFINITY;
    for (uint64_t iteration = from + 1; iteration <= iterations; iteration++) {
        double base = (1.0 - damping) * even + damping * lost * even;
        const double *brings = vectors[(iteration - 1) % 2];
        double *next = vectors[iteration % 2];
        double found[2] = {0, 0}, all[2];
        set = (uint64_t)rank;
        while (next_set(&set, size, n, rows))
            compute(&graph, rows[0], rows[1], damping, base, brings, next, found);
        if (rank == dies && iteration == dies_in) {
            char line[80];
            snprintf(line, sizeof line, "died %llu %.9f\n", (unsigned long long)iteration, MPI_Wtime() - began);
            report(report_path, line);
            raise(SIGKILL);
        }
        MPI_Win_sync(window);
        MPI_Allreduce(found, all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Win_sync(window);
        residual = all[0];
        lost = all[1];
        if (every > 0 && iteration % every == 0 && iteration < iterations) {
            struct checkpoint head = {.vertices = n, .iteration = iteration, .lost = lost};
            memcpy(head.magic, MAGIC_OF_CHECKPOINT, 8);
            make_checkpoint(file, path, ++turn, head, next, size);
            checkpoints++;
        }
    }
    double seconds = MPI_Wtime() - began;

    if (rank == 0) {
        double *vector = vectors[iterations % 2];
        for (uint64_t row = 0; row < n; row++)
            if (graph.leaving[row] > 1) vector[row] *= graph.leaving[row];
        int out = open(ranks_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (out < 0) fail("opening", ranks_path);
        write_all(out, vector, n * 8, 0, ranks_path);
        close(out);
        char line[160];
        snprintf(line, sizeof line, "done %llu %.9f %.17g %llu %llu\n", (unsigned long long)iterations, seconds,
                 residual, (unsigned long long)checkpoints, (unsigned long long)from);
        report(report_path, line);
    }
    if (file >= 0) close(file);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Comm_free(&here);
    MPI_Finalize();
    return 0;
}
