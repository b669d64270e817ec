/* Archives files and keeps once what occurs more than once: chunks end where their content says so, are compared by their
 * SHA-256, and each different one is compressed.
 *
 * The files are read into memory. Threads look for the marks where chunks may end, stretch by stretch, one thread says where they
 * do end, all take digests, one numbers the chunks in the order in which they occur, all compress those that are new, and
 * one writes the archive, in the format that `outlive unpack` reads.
 *
 * dedup THREADS REPORT RESULT LEVEL RULES FILE...
 *
 *   RESULT  the archive
 *   LEVEL   how hard to compress, from 0 to 9
 *   RULES   words of 64 bits: the least, the usual and the largest size of chunks, with how many zero bits the hash at a mark
 *           begins, and at a strong one, and what each of the 256 bytes adds to the hash
 *   FILE    is called in the archive by the last part of its path
 */

#include "common.h"
#include <openssl/evp.h>
#include <zlib.h>

enum { WINDOW = 64, STRETCH = 1 << 20, TOGETHER = 16, DIGEST = 32 };

/* Before the byte of its file that a mark is at, a chunk may end. */
struct mark {
    size_t at;
    bool is_strong;
};

/* A part of a file. */
struct stretch {
    unsigned file;
    size_t from, to;
    struct mark *marks;
    size_t count, room;
};

struct file {
    const char *path;
    int handle;
    unsigned mode;
    size_t len;
    unsigned char *bytes;
    /* Its stretches and its chunks, from the first to before the last. */
    size_t stretches[2], chunks[2];
};

struct chunk {
    const unsigned char *bytes;
    size_t len;
    unsigned char digest[DIGEST];
    uint32_t number;
};

/* What is kept of a chunk: `packed`, or the chunk itself. */
struct kept {
    const struct chunk *chunk;
    unsigned char *packed;
    uint32_t len, sum;
};

static struct {
    struct file *files;
    unsigned count;
    int level;
    size_t least, usual, most;
    uint64_t weak, strong, table[256];
    struct stretch *stretches;
    size_t count_of_stretches;
    struct chunk *chunks;
    size_t count_of_chunks, room_for_chunks;
    struct kept *kept;
    size_t count_of_kept;
    atomic_size_t next;
} all;

/* Something that grows. */
struct bytes {
    unsigned char *at;
    size_t len, room;
};

static void append(struct bytes *bytes, const void *more, size_t len) {
    if (bytes->room - bytes->len < len) {
        bytes->room = (bytes->room + len) * 2;
        bytes->at = realloc(bytes->at, bytes->room);
        if (!bytes->at) fail("allocating", "memory");
    }
    memcpy(bytes->at + bytes->len, more, len);
    bytes->len += len;
}

/* The lower bytes of a number, the lowest first. */
static void append_number(struct bytes *bytes, uint64_t number, unsigned len) {
    unsigned char little[8];
    for (unsigned at = 0; at < len; at++) little[at] = (unsigned char)(number >> 8 * at);
    append(bytes, little, len);
}

static void read_rules(const char *path) {
    size_t count;
    const uint64_t *words = read_words(path, 5 + 256, &count);
    all.least = words[0];
    all.usual = words[1];
    all.most = words[2];
    if (count != 5 + 256 || words[3] < 1 || words[3] > words[4] || words[4] > 63 || all.least <= WINDOW ||
        all.least > all.usual || all.usual > all.most)
        refuse("the rules are not valid");
    all.weak = ~(UINT64_MAX >> words[3]);
    all.strong = ~(UINT64_MAX >> words[4]);
    memcpy(all.table, words + 5, sizeof all.table);
}

static void add_mark(struct stretch *stretch, struct mark mark) {
    if (stretch->count == stretch->room) {
        stretch->room = stretch->room ? stretch->room * 2 : 1024;
        stretch->marks = realloc(stretch->marks, stretch->room * sizeof mark);
        if (!stretch->marks) fail("allocating", "memory");
    }
    stretch->marks[stretch->count++] = mark;
}

/* Reads stretches, and finds the marks in them. */
static void look_for_marks(void *shared, unsigned thread) {
    (void)shared, (void)thread;
    for (size_t number, end; claim(&all.next, 1, all.count_of_stretches, &number, &end);) {
        struct stretch *stretch = &all.stretches[number];
        struct file *file = &all.files[stretch->file];
        /* The bytes before belong to the window of the first ones, and may not have been read yet. */
        unsigned char before[WINDOW - 1];
        size_t many = least(stretch->from, sizeof before);
        read_at(file->handle, before, many, stretch->from - many, file->path);
        read_at(file->handle, file->bytes + stretch->from, stretch->to - stretch->from, stretch->from, file->path);
        uint64_t hash = 0;
        for (size_t at = 0; at < many; at++) hash = (hash << 1) + all.table[before[at]];
        for (size_t at = stretch->from; at < stretch->to; at++) {
            hash = (hash << 1) + all.table[file->bytes[at]];
            if ((hash & all.weak) == 0) add_mark(stretch, (struct mark){at + 1, (hash & all.strong) == 0});
        }
    }
}

static void add_chunk(struct file *file, size_t from, size_t to) {
    if (all.count_of_chunks == all.room_for_chunks) {
        all.room_for_chunks = all.room_for_chunks ? all.room_for_chunks * 2 : 1024;
        all.chunks = realloc(all.chunks, all.room_for_chunks * sizeof *all.chunks);
        if (!all.chunks) fail("allocating", "memory");
    }
    all.chunks[all.count_of_chunks++] = (struct chunk){.bytes = file->bytes + from, .len = to - from};
}

/* Says where the chunks of a file end: at the first strong mark behind the least size; if there is none before the
 * usual one, at the first mark; if there is none before the largest, there. */
static void cut(struct file *file) {
    size_t count = 0;
    for (size_t at = file->stretches[0]; at < file->stretches[1]; at++) count += all.stretches[at].count;
    struct mark *marks = allocate(count * sizeof *marks), *next = marks;
    for (size_t at = file->stretches[0]; at < file->stretches[1]; at++) {
        struct stretch *stretch = &all.stretches[at];
        if (stretch->count) memcpy(next, stretch->marks, stretch->count * sizeof *marks);
        next += stretch->count;
        free(stretch->marks);
    }
    const struct mark *mark = marks, *last = marks + count;
    file->chunks[0] = all.count_of_chunks;
    for (size_t from = 0, end; from < file->len; from = end) {
        while (mark < last && mark->at < from + all.least) mark++;
        while (mark < last && mark->at < from + all.usual && !mark->is_strong) mark++;
        end = mark < last && mark->at <= from + all.most ? mark->at : from + all.most;
        end = least(end, file->len);
        add_chunk(file, from, end);
    }
    file->chunks[1] = all.count_of_chunks;
    free(marks);
}

static void take_digests(void *shared, unsigned thread) {
    (void)shared, (void)thread;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const EVP_MD *sha256 = EVP_sha256();
    for (size_t from, to; claim(&all.next, TOGETHER, all.count_of_chunks, &from, &to);)
        for (struct chunk *chunk = all.chunks + from; chunk < all.chunks + to; chunk++)
            if (!context || !EVP_DigestInit_ex(context, sha256, NULL) ||
                !EVP_DigestUpdate(context, chunk->bytes, chunk->len) ||
                !EVP_DigestFinal_ex(context, chunk->digest, NULL))
                refuse("no SHA-256");
    EVP_MD_CTX_free(context);
}

/* Numbers the chunks in the order in which they first occur. */
static void number_chunks(void) {
    size_t size = 16;
    while (size < all.count_of_chunks * 2) size *= 2;
    uint32_t *slots = allocate_zeroed(size, sizeof *slots);
    all.kept = allocate(all.count_of_chunks * sizeof *all.kept);
    for (size_t at = 0; at < all.count_of_chunks; at++) {
        struct chunk *chunk = &all.chunks[at];
        uint64_t hash;
        /* Any part of a digest is as good as a hash. */
        memcpy(&hash, chunk->digest, sizeof hash);
        size_t slot = hash & (size - 1);
        while (slots[slot] && memcmp(all.kept[slots[slot] - 1].chunk->digest, chunk->digest, DIGEST) != 0)
            slot = (slot + 1) & (size - 1);
        if (!slots[slot]) {
            all.kept[all.count_of_kept] = (struct kept){.chunk = chunk};
            slots[slot] = (uint32_t)++all.count_of_kept;
        }
        chunk->number = slots[slot] - 1;
    }
    free(slots);
}

static void pack(void *shared, unsigned thread) {
    (void)shared, (void)thread;
    z_stream stream = {0};
    if (deflateInit2(&stream, all.level, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) refuse("no deflate");
    for (size_t from, to; claim(&all.next, TOGETHER, all.count_of_kept, &from, &to);)
        for (struct kept *kept = all.kept + from; kept < all.kept + to; kept++) {
            const struct chunk *chunk = kept->chunk;
            unsigned char *packed = allocate(chunk->len);
            deflateReset(&stream);
            stream.next_in = (unsigned char *)chunk->bytes;
            stream.avail_in = (unsigned)chunk->len;
            stream.next_out = packed;
            /* With less room than the chunk takes, it does not come to its end if it is not shorter. */
            stream.avail_out = (unsigned)chunk->len - 1;
            if (stream.avail_out > 0 && deflate(&stream, Z_FINISH) == Z_STREAM_END) {
                kept->len = (uint32_t)stream.total_out;
                kept->packed = packed;
            } else {
                kept->len = (uint32_t)chunk->len;
                free(packed);
            }
            const unsigned char *bytes = kept->packed ? kept->packed : chunk->bytes;
            kept->sum = (uint32_t)crc32(0, bytes, kept->len);
        }
    deflateEnd(&stream);
}

static void write_archive(const char *path) {
    FILE *out = begin_result(path);
    put(out, "OutDedup\2\0\0\0\0\0\0\0", 16);
    uint64_t at = 16;
    struct bytes index = {0};
    append_number(&index, all.count_of_kept, 8);
    for (const struct kept *kept = all.kept; kept < all.kept + all.count_of_kept; kept++) {
        put(out, kept->packed ? kept->packed : kept->chunk->bytes, kept->len);
        at += kept->len;
        append_number(&index, kept->len, 4);
        append_number(&index, kept->chunk->len, 4);
        append_number(&index, kept->sum, 4);
        append(&index, kept->chunk->digest, DIGEST);
    }
    uint64_t bytes = 0;
    for (const struct file *file = all.files; file < all.files + all.count; file++) bytes += file->len;
    append_number(&index, bytes, 8);
    append_number(&index, all.count, 8);
    for (const struct file *file = all.files; file < all.files + all.count; file++) {
        const char *slash = strrchr(file->path, '/'), *name = slash ? slash + 1 : file->path;
        /* It is a file. */
        append_number(&index, 1, 1);
        append_number(&index, file->mode, 4);
        append_number(&index, strlen(name), 8);
        append(&index, name, strlen(name));
        append_number(&index, file->chunks[1] - file->chunks[0], 8);
        for (size_t chunk = file->chunks[0]; chunk < file->chunks[1]; chunk++)
            append_number(&index, all.chunks[chunk].number, 4);
    }
    uint64_t len = index.len;
    append_number(&index, at, 8);
    append_number(&index, len, 8);
    unsigned char digest[DIGEST];
    if (!EVP_Digest(index.at, index.len, digest, NULL, EVP_sha256(), NULL)) refuse("no SHA-256");
    append(&index, digest, DIGEST);
    append(&index, "pudeDtuO", 8);
    put(out, index.at, index.len);
    end_result(out, path);
}

static void open_files(char **paths) {
    for (unsigned number = 0; number < all.count; number++) {
        struct stat found;
        struct file *file = &all.files[number];
        file->path = paths[number];
        file->handle = open_file(file->path, &found);
        file->mode = found.st_mode & 0777;
        file->len = (size_t)found.st_size;
        file->bytes = allocate(file->len);
        all.count_of_stretches += (file->len + STRETCH - 1) / STRETCH;
    }
    all.stretches = allocate_zeroed(all.count_of_stretches, sizeof *all.stretches);
    struct stretch *next = all.stretches;
    for (unsigned number = 0; number < all.count; number++) {
        struct file *file = &all.files[number];
        file->stretches[0] = (size_t)(next - all.stretches);
        for (size_t from = 0; from < file->len; from += STRETCH)
            *next++ = (struct stretch){.file = number, .from = from, .to = least(from + STRETCH, file->len)};
        file->stretches[1] = (size_t)(next - all.stretches);
    }
}

static void again(unsigned threads, work *work) {
    atomic_store(&all.next, 0);
    in_threads(threads, work, NULL);
}

int main(int count, char **arguments) {
    if (count < 7) refuse("dedup THREADS REPORT RESULT LEVEL RULES FILE...");
    unsigned threads = threads_of(arguments[1]);
    all.level = atoi(arguments[4]);
    read_rules(arguments[5]);
    all.count = (unsigned)count - 6;
    all.files = allocate_zeroed(all.count, sizeof *all.files);
    struct moment began = now();
    open_files(arguments + 6);
    again(threads, look_for_marks);
    for (unsigned number = 0; number < all.count; number++) cut(&all.files[number]);
    again(threads, take_digests);
    number_chunks();
    again(threads, pack);
    write_archive(arguments[3]);
    struct moment ended = now();
    report(arguments[2], began, ended);
    return 0;
}
