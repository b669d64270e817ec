/* Counts the values of the three channels of a 24-bit bitmap.
 *
 * Threads take rows, read them from the file and count neighbours in tables of their own, so that a count that was
 * just raised need not be waited for.
 *
 * histogram THREADS REPORT RESULT PICTURE
 *
 * The result has 256 counts of each channel, 64 bits each: blue, green, red.
 */

#include "common.h"

/* How much is read at a time, about: it stays in the cache until it is counted. */
enum { PIECE = 256 << 10, CHANNELS = 3, TABLES = 6 };

static struct {
    const char *path;
    int file;
    /* Where the data begin, how many bytes of a row count, and how far it is from one row to the next. */
    size_t start, row, stride, rows;
    size_t together;
    atomic_size_t next;
    pthread_mutex_t mutex;
    uint64_t counts[CHANNELS][256];
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void count_row(const unsigned char *bytes, size_t len, uint32_t tables[TABLES][256]) {
    size_t at = 0;
    for (; at + TABLES <= len; at += TABLES)
        for (size_t table = 0; table < TABLES; table++) tables[table][bytes[at + table]]++;
    for (size_t table = 0; at < len; table++, at++) tables[table][bytes[at]]++;
}

static void count(void *shared, unsigned thread) {
    (void)shared, (void)thread;
    uint64_t counts[CHANNELS][256] = {{0}};
    unsigned char *piece = allocate(all.together * all.stride);
    for (size_t from, to; claim(&all.next, all.together, all.rows, &from, &to);) {
        uint32_t tables[TABLES][256] = {{0}};
        /* What pads the last row need not be there. */
        read_at(all.file, piece, (to - from - 1) * all.stride + all.row, all.start + from * all.stride, all.path);
        for (size_t row = 0; row < to - from; row++) count_row(piece + row * all.stride, all.row, tables);
        for (size_t table = 0; table < TABLES; table++)
            for (size_t value = 0; value < 256; value++) counts[table % CHANNELS][value] += tables[table][value];
    }
    free(piece);
    pthread_mutex_lock(&all.mutex);
    for (size_t channel = 0; channel < CHANNELS; channel++)
        for (size_t value = 0; value < 256; value++) all.counts[channel][value] += counts[channel][value];
    pthread_mutex_unlock(&all.mutex);
}

static uint32_t number(const unsigned char *at, unsigned bytes) {
    uint32_t number = 0;
    while (bytes-- > 0) number = number << 8 | at[bytes];
    return number;
}

static void look(const char *path) {
    struct stat found;
    unsigned char head[54];
    all.path = path;
    all.file = open_file(path, &found);
    if ((size_t)found.st_size < sizeof head) refuse("the picture is too short");
    read_at(all.file, head, sizeof head, 0, path);
    if (memcmp(head, "BM", 2) != 0 || number(head + 28, 2) != 24 || number(head + 30, 4) != 0)
        refuse("the picture is not a bitmap of 24 bits");
    int32_t width = (int32_t)number(head + 18, 4), height = (int32_t)number(head + 22, 4);
    if (width <= 0 || height <= 0) refuse("the picture has an unsupported size");
    all.start = number(head + 10, 4);
    all.row = (size_t)width * CHANNELS;
    all.stride = (all.row + 3) / 4 * 4;
    all.rows = (size_t)height;
    if (all.start + all.stride * (all.rows - 1) + all.row > (size_t)found.st_size) refuse("the picture is cut off");
    all.together = PIECE / all.stride ? PIECE / all.stride : 1;
}

int main(int count_of_arguments, char **arguments) {
    if (count_of_arguments != 5) refuse("histogram THREADS REPORT RESULT PICTURE");
    unsigned threads = threads_of(arguments[1]);
    struct moment began = now();
    look(arguments[4]);
    in_threads(threads, count, NULL);
    struct moment ended = now();
    FILE *out = begin_result(arguments[3]);
    put(out, all.counts, sizeof all.counts);
    end_result(out, arguments[3]);
    report(arguments[2], began, ended);
    return 0;
}
