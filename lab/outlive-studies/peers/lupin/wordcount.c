/* Counts the words of files: runs of ASCII letters and digits, in lower case.
 *
 * Threads take pieces of the text and count in tables of their own; then each adds up of all tables the words whose
 * hashes are its.
 *
 * wordcount THREADS REPORT RESULT FILE...
 *
 * The result has a line for each word, "WORD\tCOUNT", by falling count and then by word.
 */

#include "common.h"

enum { PIECE = 1 << 20, ARENA = 1 << 16, SMALLEST = 1 << 12 };

/* Of a byte that belongs to words its lower case, of others 0. */
static unsigned char lower[256];

struct text {
    const unsigned char *at;
    size_t len;
};

struct entry {
    const unsigned char *word;
    uint64_t hash;
    uint64_t count;
    size_t len;
};

/* Open addressing; at most half of it is used. */
struct table {
    struct entry *entries;
    size_t size;
    size_t used;
    /* Where words are copied to. */
    unsigned char *arena;
    size_t room;
};

static struct {
    struct text *texts;
    unsigned files;
    unsigned threads;
    /* Pieces of all files, and where each file's begin. */
    size_t *first_piece;
    atomic_size_t next;
    struct table *tables;
    struct table *totals;
} all;

static struct table new_table(size_t size) {
    return (struct table){.entries = allocate_zeroed(size, sizeof(struct entry)), .size = size};
}

static const unsigned char *keep(struct table *table, const unsigned char *word, size_t len) {
    if (table->room < len) {
        table->room = len > ARENA ? len : ARENA;
        table->arena = allocate(table->room);
    }
    unsigned char *kept = table->arena;
    for (size_t at = 0; at < len; at++) kept[at] = lower[word[at]];
    table->arena += len;
    table->room -= len;
    return kept;
}

static void grow(struct table *table) {
    struct table larger = new_table(table->size * 2);
    for (size_t at = 0; at < table->size; at++) {
        const struct entry *entry = &table->entries[at];
        if (!entry->word) continue;
        size_t slot = entry->hash & (larger.size - 1);
        while (larger.entries[slot].word) slot = (slot + 1) & (larger.size - 1);
        larger.entries[slot] = *entry;
    }
    free(table->entries);
    table->entries = larger.entries;
    table->size = larger.size;
}

static bool is_same(const unsigned char *kept, const unsigned char *word, size_t len) {
    for (size_t at = 0; at < len; at++)
        if (kept[at] != lower[word[at]]) return false;
    return true;
}

static void add(struct table *table, const unsigned char *word, size_t len, uint64_t hash, uint64_t count) {
    size_t slot = hash & (table->size - 1);
    for (;; slot = (slot + 1) & (table->size - 1)) {
        struct entry *entry = &table->entries[slot];
        if (!entry->word) break;
        if (entry->hash == hash && entry->len == len && is_same(entry->word, word, len)) {
            entry->count += count;
            return;
        }
    }
    table->entries[slot] = (struct entry){keep(table, word, len), hash, count, len};
    if (++table->used > table->size / 2) grow(table);
}

/* Counts the words that begin from `at` to before `to`. */
static void count_piece(struct table *table, struct text text, size_t at, size_t to) {
    if (at > 0 && lower[text.at[at - 1]])
        while (at < text.len && lower[text.at[at]]) at++;
    while (at < to) {
        if (!lower[text.at[at]]) {
            at++;
            continue;
        }
        /* Fowler, Noll and Vo's; its upper half is mixed best, and is brought down. */
        uint64_t hash = 0xcbf29ce484222325;
        size_t begin = at;
        for (unsigned char byte; at < text.len && (byte = lower[text.at[at]]) != 0; at++)
            hash = (hash ^ byte) * 0x100000001b3;
        add(table, text.at + begin, at - begin, hash ^ hash >> 32, 1);
    }
}

static void count(void *shared, unsigned thread) {
    (void)shared;
    struct table table = new_table(SMALLEST);
    unsigned file = 0;
    for (size_t piece, end; claim(&all.next, 1, all.first_piece[all.files], &piece, &end);) {
        while (piece >= all.first_piece[file + 1]) file++;
        size_t from = (piece - all.first_piece[file]) * PIECE;
        count_piece(&table, all.texts[file], from, least(from + PIECE, all.texts[file].len));
    }
    all.tables[thread] = table;
}

/* Adds up the words of this thread's: by bits that choose no slot. */
static void total(void *shared, unsigned thread) {
    (void)shared;
    struct table totals = new_table(SMALLEST);
    for (unsigned other = 0; other < all.threads; other++) {
        const struct table *table = &all.tables[other];
        for (size_t at = 0; at < table->size; at++) {
            const struct entry *entry = &table->entries[at];
            if (entry->word && (entry->hash >> 32) * all.threads >> 32 == thread)
                add(&totals, entry->word, entry->len, entry->hash, entry->count);
        }
    }
    all.totals[thread] = totals;
}

static int in_order(const void *left, const void *right) {
    const struct entry *a = left, *b = right;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    int order = memcmp(a->word, b->word, least(a->len, b->len));
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

static void write_totals(const char *path) {
    size_t used = 0;
    for (unsigned thread = 0; thread < all.threads; thread++) used += all.totals[thread].used;
    struct entry *entries = allocate(used * sizeof *entries), *next = entries;
    for (unsigned thread = 0; thread < all.threads; thread++)
        for (size_t at = 0; at < all.totals[thread].size; at++)
            if (all.totals[thread].entries[at].word) *next++ = all.totals[thread].entries[at];
    qsort(entries, used, sizeof *entries, in_order);
    FILE *out = begin_result(path);
    for (size_t at = 0; at < used; at++)
        fprintf(out, "%.*s\t%llu\n", (int)entries[at].len, (const char *)entries[at].word,
                (unsigned long long)entries[at].count);
    end_result(out, path);
}

int main(int count_of_arguments, char **arguments) {
    if (count_of_arguments < 5) refuse("wordcount THREADS REPORT RESULT FILE...");
    for (int byte = 0; byte < 256; byte++) {
        bool is_capital = byte >= 'A' && byte <= 'Z';
        bool belongs = is_capital || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9');
        lower[byte] = (unsigned char)(is_capital ? byte + 'a' - 'A' : belongs ? byte : 0);
    }
    all.threads = threads_of(arguments[1]);
    all.files = (unsigned)count_of_arguments - 4;
    all.texts = allocate(all.files * sizeof *all.texts);
    all.first_piece = allocate_zeroed(all.files + 1, sizeof *all.first_piece);
    all.tables = allocate(all.threads * sizeof *all.tables);
    all.totals = allocate(all.threads * sizeof *all.totals);
    struct moment began = now();
    for (unsigned number = 0; number < all.files; number++) {
        struct stat found;
        int file = open_file(arguments[4 + number], &found);
        struct text *text = &all.texts[number];
        text->len = (size_t)found.st_size;
        text->at = text->len ? mmap(NULL, text->len, PROT_READ, MAP_SHARED, file, 0) : NULL;
        if (text->at == MAP_FAILED) fail("mapping", arguments[4 + number]);
        close(file);
        all.first_piece[number + 1] = all.first_piece[number] + (text->len + PIECE - 1) / PIECE;
    }
    in_threads(all.threads, count, NULL);
    in_threads(all.threads, total, NULL);
    struct moment ended = now();
    write_totals(arguments[3]);
    report(arguments[2], began, ended);
    return 0;
}
