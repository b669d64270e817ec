/* Events, put into a thread's bytes, and blocks, put into the file. */

enum event {
    COMPUTE = 1, LOAD, STORE, STORE_PART, ATOMIC, FENCE, PRIVATE_LOAD, PRIVATE_STORE, LOCK, UNLOCK, BARRIER, WAIT_BEGIN,
    WAIT_END, SIGNAL, BROADCAST, ACQUIRE, RELEASE, AWAIT, ADVANCE, REGION_BEGIN, REGION_END
};
enum block_kind { ABOUT_BLOCK = 1, IMAGE_BLOCK = 2, EVENTS_BLOCK = 3 };

HIDDEN void put_number(unsigned char **at, uint64_t value) {
    while (value >= 0x80) {
        *(*at)++ = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    *(*at)++ = (unsigned char)value;
}

HIDDEN uint64_t difference(uint64_t to, uint64_t from) {
    int64_t d = (int64_t)(to - from);
    return (uint64_t)(d << 1) ^ (uint64_t)(d >> 63);
}

HIDDEN void put_fixed(unsigned char *at, uint64_t value, unsigned length) {
    for (unsigned i = 0; i < length; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

HIDDEN uint32_t crc_of(uint32_t crc, const unsigned char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++)
        crc = R.crc[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
    return crc;
}

/* Appends to the file, under the lock. Unless the program has closed it: then its number may be that of a file of the program's. */
HIDDEN void put_file(const void *bytes, size_t length) {
    const char *at = bytes;
    struct stat there;
    if (fstat(R.fd, &there) != 0 || there.st_dev != R.device || there.st_ino != R.inode) {
        fail("outlive: the program has closed the trace %s, which is unusable now", R.path);
        return;
    }
    while (length > 0 && !R.failed) {
        ssize_t written = put_bytes(R.fd, at, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            fail("outlive: the trace %s cannot be written: %s; it is unusable", R.path, strerror(errno));
            return;
        }
        at += written;
        length -= (size_t)written;
        R.end += (uint64_t)written;
    }
}

HIDDEN void put_block(enum block_kind kind, uint32_t thread, uint32_t items, const unsigned char *bytes, size_t length) {
    unsigned char header[32] = "TBLK";
    header[4] = kind;
    put_fixed(header + 8, thread, 4);
    put_fixed(header + 12, length, 4);
    put_fixed(header + 16, length, 4);
    put_fixed(header + 20, items, 4);
    put_fixed(header + 28, ~crc_of(crc_of(~0u, header, 28), bytes, length), 4);
    spin_lock(&R.lock);
    if (R.place_count == MOST_BLOCKS) {
        fail("outlive: the trace has become too large; record less of the program (OUTLIVE_RECORD=roi)");
    } else if (!R.failed) {
        R.places[R.place_count++] = (struct place){R.end, thread, kind};
        put_file(header, sizeof header);
        put_file(bytes, length);
    }
    spin_unlock(&R.lock);
}

HIDDEN void put_events(struct thread *t) {
    if (t->events)
        put_block(EVENTS_BLOCK, t->number, t->events, t->bytes, t->used);
    t->events = 0;
    t->used = 0;
    t->word = t->address = 0;
}

/* Room for one event of any kind. */
HIDDEN unsigned char *begin_event(struct thread *t) {
    if (t->used >= BLOCK)
        put_events(t);
    t->events++;
    return t->bytes + t->used;
}

HIDDEN void end_event(struct thread *t, unsigned char *at) { t->used = (size_t)(at - t->bytes); }

HIDDEN void event0(struct thread *t, enum event kind) {
    unsigned char *at = begin_event(t);
    *at++ = kind;
    end_event(t, at);
}

HIDDEN void event1(struct thread *t, enum event kind, uint64_t a) {
    unsigned char *at = begin_event(t);
    *at++ = kind;
    put_number(&at, a);
    end_event(t, at);
}

HIDDEN void event2(struct thread *t, enum event kind, uint64_t a, uint64_t b) {
    unsigned char *at = begin_event(t);
    *at++ = kind;
    put_number(&at, a);
    put_number(&at, b);
    end_event(t, at);
}

HIDDEN void event3(struct thread *t, enum event kind, uint64_t a, uint64_t b, uint64_t c) {
    unsigned char *at = begin_event(t);
    *at++ = kind;
    put_number(&at, a);
    put_number(&at, b);
    put_number(&at, c);
    end_event(t, at);
}

HIDDEN void put_word(struct thread *t, unsigned char **at, uint64_t word) {
    put_number(at, difference(word, t->word));
    t->word = word;
}

HIDDEN void word_event(struct thread *t, enum event kind, uint64_t word) {
    unsigned char *at = begin_event(t);
    *at++ = kind;
    put_word(t, &at, word);
    end_event(t, at);
}

HIDDEN void load_event(struct thread *t, uint64_t word, uint64_t value) {
    unsigned char *at = begin_event(t);
    *at++ = (unsigned char)(LOAD | R.loads << 5);
    put_word(t, &at, word);
    if (R.loads)
        put_number(&at, value);
    end_event(t, at);
}

/* A store of the bytes in the mask, after which the word has the value. */
HIDDEN void store_event(struct thread *t, uint64_t word, unsigned mask, uint64_t value) {
    unsigned length = value ? (71 - (unsigned)__builtin_clzll(value)) / 8 : 1;
    unsigned char *at = begin_event(t);
    *at++ = (unsigned char)((mask == 0xff ? STORE : STORE_PART) | (length - 1) << 5);
    put_word(t, &at, word);
    if (mask != 0xff)
        *at++ = (unsigned char)mask;
    put_fixed(at, value, length);
    end_event(t, at + length);
}

HIDDEN void atomic_event(struct thread *t, unsigned kind, uint64_t word, unsigned mask, uint64_t read, uint64_t written) {
    unsigned char *at = begin_event(t);
    *at++ = (unsigned char)(ATOMIC | kind << 5);
    put_word(t, &at, word);
    *at++ = (unsigned char)mask;
    put_number(&at, read);
    put_number(&at, written);
    end_event(t, at);
}

HIDDEN void private_event(struct thread *t, bool write, uint64_t address) {
    unsigned char *at = begin_event(t);
    *at++ = write ? PRIVATE_STORE : PRIVATE_LOAD;
    put_number(&at, difference(address, t->address));
    t->address = address;
    end_event(t, at);
}

/* The instructions that are thought to stand before the next one that is recorded. */
HIDDEN void gap(struct thread *t) {
    t->gap += R.gap;
    uint32_t count = t->gap / 100;
    t->gap %= 100;
    if (count == 0)
        return;
    unsigned char *at = begin_event(t);
    *at++ = (unsigned char)(COMPUTE | (count < 8 ? count : 0) << 5);
    if (count >= 8)
        put_number(&at, count);
    end_event(t, at);
}
