/* Plain accesses. The compiler announces them before they are done, so the value of a store is read when the thread
 * comes here next, and no earlier: whatever is announced, the store before it has been done by then. Reads may be
 * announced between a store and its being done (a struct is copied: store, load, then the copy), so they wait in a
 * queue. */

/* The word of shared memory at an address, or false if that is private. */
HIDDEN bool shared_word(uintptr_t address, uint64_t *word) {
    uint64_t at;
    if (address - R.globals < R.globals_end - R.globals)
        at = address - R.globals;
    /* What a program reads beyond all that it has allocated is nobody's. It is raised before anybody hears of what is below. */
    else if (address - heaps[0].base < __atomic_load_n(&heaps[0].used, __ATOMIC_RELAXED))
        at = R.globals_end - R.globals + (address - heaps[0].base);
    else
        return false;
    *word = at / 8;
    return true;
}

HIDDEN uint64_t value_at(uintptr_t address) {
    return __atomic_load_n((uint64_t *)(address & ~(uintptr_t)7), __ATOMIC_RELAXED);
}

/* Writes down an access that has been done, word by word. */
HIDDEN void put_access(struct thread *t, uintptr_t address, size_t size, bool write) {
    uintptr_t end = address + size;
    gap(t);
    while (address < end) {
        uintptr_t next = (address | 7) + 1;
        if (next > end)
            next = end;
        uint64_t word;
        if (!shared_word(address, &word))
            private_event(t, write, address);
        else if (write)
            store_event(t, word, (0xffu >> (8 - (next - address))) << (address & 7), value_at(address));
        else
            load_event(t, word, R.loads ? value_at(address) : 0);
        address = next;
    }
}

HIDDEN struct object *atomic_at(uintptr_t address) { return object_at(address >> 3, AN_ATOMIC); }

HIDDEN uint64_t small_value(uintptr_t address, size_t size) {
    switch (size) {
    case 1: return __atomic_load_n((uint8_t *)address, __ATOMIC_RELAXED);
    case 2: return __atomic_load_n((uint16_t *)address, __ATOMIC_RELAXED);
    case 4: return __atomic_load_n((uint32_t *)address, __ATOMIC_RELAXED);
    default: return __atomic_load_n((uint64_t *)address, __ATOMIC_RELAXED);
    }
}

/* A read of one place, as a word of shared memory or as somebody's stack. */
HIDDEN void load_of(struct thread *t, uintptr_t address) {
    uint64_t word;
    if (shared_word(address, &word))
        load_event(t, word, value_at(address));
    else
        private_event(t, false, address);
}

/* Writes down what has been announced: all of it has been done. */
HIDDEN void settle(struct thread *t) {
    if (t->store_size) {
        put_access(t, t->store_at, t->store_size, true);
        t->store_size = 0;
        if (t->store_order)
            event1(t, ADVANCE, t->store_order - 1);
        t->store_order = 0;
    }
    if (t->spin_at && t->spin_volatile && small_value(t->spin_at, t->spin_size) != t->spin_value) {
        /* A volatile was looked at here, and then read; it may have changed in between, and ended the wait for it. */
        struct object *o = atomic_at(t->spin_at);
        event2(t, AWAIT, o->order, __atomic_load_n(&o->turns, __ATOMIC_SEQ_CST));
        load_of(t, t->spin_at);
        __atomic_store_n(&R.spins, 1, __ATOMIC_RELAXED);
    }
    t->spin_at = 0;
    unsigned count = t->queued;
    t->queued = 0;
    for (unsigned i = 0; i < count; i++)
        put_access(t, t->queue[i].address, t->queue[i].size, t->queue[i].write);
}

/* The calling thread, if it is recorded, until it is released. */
HIDDEN struct thread *enter(void) {
    struct thread *t = grab();
    if (!t)
        return NULL;
    if (!recording()) {
        release(t);
        return NULL;
    }
    if (t->unsettled) {
        /* Locks that it took before the recording began, or just now. */
        settle(t);
        for (unsigned i = 0; i < t->holds; i++) {
            struct held *held = &t->held[i];
            if (!held->recorded) {
                gap(t);
                event2(t, LOCK, held->lock->id, __atomic_fetch_add(&held->lock->turns, 1, __ATOMIC_RELAXED));
            }
            held->recorded = true;
        }
        t->unsettled = false;
    }
    return t;
}

HIDDEN void queue(struct thread *t, uintptr_t address, size_t size, bool write) {
    if (t->queued == MOST_QUEUED)
        settle(t);
    t->queue[t->queued++] = (struct queued){address, size, write};
}

HIDDEN void will_read(struct thread *t, uintptr_t address, size_t size) { queue(t, address, size, false); }

HIDDEN void will_write(struct thread *t, uintptr_t address, size_t size) {
    uint64_t word;
    if (!shared_word(address, &word)) {
        queue(t, address, size, true);
        return;
    }
    settle(t);
    t->store_at = address;
    t->store_size = size;
}

HIDDEN void reads(const void *at, size_t size) {
    struct thread *t = enter();
    if (t) {
        will_read(t, (uintptr_t)at, size);
        release(t);
    }
}

HIDDEN void writes(const void *at, size_t size) {
    struct thread *t = enter();
    if (t) {
        will_write(t, (uintptr_t)at, size);
        release(t);
    }
}

/* A volatile that is read again and again is waited for, as an atomic is, on another's stack too. What is found here may not be
 * what the program finds right after; `settle` sees to that. */
HIDDEN void volatile_reads(const volatile void *at, size_t size) {
    struct thread *t = enter();
    if (!t)
        return;
    uintptr_t address = (uintptr_t)at;
    if ((address & 7) + size > 8 || (size & (size - 1))) {
        will_read(t, address, size);
        release(t);
        return;
    }
    struct object *o = atomic_at(address);
    /* The turn first: a write raises it before it is done. So it may be too low for the value, and `settle` looks again. */
    uint64_t turn = __atomic_load_n(&o->turns, __ATOMIC_SEQ_CST);
    uint64_t value = small_value(address, size);
    if (t->spin_at == address && t->spin_value == value && !t->store_size) {
        t->spins++;
        t->queued = 0;
    } else {
        if (t->spin_at == address && t->spins) {
            t->spin_at = 0;
            t->queued = 0;
            turn = __atomic_load_n(&o->turns, __ATOMIC_SEQ_CST);
            __atomic_store_n(&R.spins, 1, __ATOMIC_RELAXED);
        }
        settle(t);
        event2(t, AWAIT, o->order, turn);
        gap(t);
        load_of(t, address);
        t->spin_at = address;
        t->spin_size = size;
        t->spin_value = value;
        t->spin_volatile = true;
        t->spins = 0;
        R.order_needed[o->order] = 1;
    }
    release(t);
}

HIDDEN void volatile_writes(const volatile void *at, size_t size) {
    struct thread *t = enter();
    uint64_t word;
    if (!t)
        return;
    uintptr_t address = (uintptr_t)at;
    bool shared = shared_word(address, &word);
    if (!shared)
        settle(t);
    will_write(t, address, size);
    struct object *o = atomic_at(address);
    event2(t, AWAIT, o->order, __atomic_fetch_add(&o->turns, 1, __ATOMIC_SEQ_CST));
    if (shared) {
        t->store_order = o->order + 1;
    } else {
        /* A trace does not say what is written there, so it need not have been done. */
        settle(t);
        event1(t, ADVANCE, o->order);
    }
    release(t);
}

#define OF_SIZE(prefix, size) \
    void __tsan_##prefix##read##size(void *at) { reads(at, size); } \
    void __tsan_##prefix##write##size(void *at) { writes(at, size); } \
    void __tsan_##prefix##read_write##size(void *at) { reads(at, size); writes(at, size); }
#define VOLATILE_OF_SIZE(prefix, size) \
    void __tsan_##prefix##volatile_read##size(void *at) { volatile_reads(at, size); } \
    void __tsan_##prefix##volatile_write##size(void *at) { volatile_writes(at, size); }

OF_SIZE(, 1)
OF_SIZE(, 2)
OF_SIZE(, 4)
OF_SIZE(, 8)
OF_SIZE(, 16)
OF_SIZE(unaligned_, 2)
OF_SIZE(unaligned_, 4)
OF_SIZE(unaligned_, 8)
OF_SIZE(unaligned_, 16)
VOLATILE_OF_SIZE(, 1)
VOLATILE_OF_SIZE(, 2)
VOLATILE_OF_SIZE(, 4)
VOLATILE_OF_SIZE(, 8)
VOLATILE_OF_SIZE(, 16)
VOLATILE_OF_SIZE(unaligned_, 2)
VOLATILE_OF_SIZE(unaligned_, 4)
VOLATILE_OF_SIZE(unaligned_, 8)
VOLATILE_OF_SIZE(unaligned_, 16)

void __tsan_read_range(void *at, size_t size) { reads(at, size); }
void __tsan_write_range(void *at, size_t size) { writes(at, size); }
void __tsan_vptr_read(void **at) { reads(at, 8); }
void __tsan_vptr_update(void **at, void *value) { (void)value; writes(at, 8); }
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void) {}
void __tsan_init(void) {}

/* Copies by the library, also as its checked functions do them. A struct's has been announced already if the compiler makes a call of
 * it. */
void *__real_memcpy(void *, const void *, size_t);
void *__real_memmove(void *, const void *, size_t);
void *__real_memset(void *, int, size_t);
void *__real___memcpy_chk(void *, const void *, size_t, size_t);
void *__real___memmove_chk(void *, const void *, size_t, size_t);
void *__real___memset_chk(void *, int, size_t, size_t);

HIDDEN void copies(const void *to, const void *from, size_t size) {
    struct thread *t = size ? enter() : NULL;
    if (!t)
        return;
    bool announced = false;
    if (t->store_size == size && t->store_at == (uintptr_t)to)
        for (unsigned i = 0; i < t->queued; i++)
            announced |= t->queue[i].address == (uintptr_t)from && t->queue[i].size == size;
    if (!announced) {
        will_read(t, (uintptr_t)from, size);
        will_write(t, (uintptr_t)to, size);
    }
    release(t);
}

HIDDEN void fills(const void *to, size_t size) {
    struct thread *t = size ? enter() : NULL;
    if (!t)
        return;
    if (t->store_size != size || t->store_at != (uintptr_t)to || t->queued)
        will_write(t, (uintptr_t)to, size);
    release(t);
}

void *__wrap_memcpy(void *to, const void *from, size_t size) {
    copies(to, from, size);
    return __real_memcpy(to, from, size);
}

void *__wrap_memmove(void *to, const void *from, size_t size) {
    copies(to, from, size);
    return __real_memmove(to, from, size);
}

void *__wrap_memset(void *to, int byte, size_t size) {
    fills(to, size);
    return __real_memset(to, byte, size);
}

void *__wrap___memcpy_chk(void *to, const void *from, size_t size, size_t room) {
    copies(to, from, size);
    return __real___memcpy_chk(to, from, size, room);
}

void *__wrap___memmove_chk(void *to, const void *from, size_t size, size_t room) {
    copies(to, from, size);
    return __real___memmove_chk(to, from, size, room);
}

void *__wrap___memset_chk(void *to, int byte, size_t size, size_t room) {
    fills(to, size);
    return __real___memset_chk(to, byte, size, room);
}

void __wrap_bcopy(const void *from, void *to, size_t size) { __wrap_memmove(to, from, size); }
void __wrap_bzero(void *to, size_t size) { __wrap_memset(to, 0, size); }

void *__tsan_memcpy(void *to, const void *from, size_t size) { return __wrap_memcpy(to, from, size); }
void *__tsan_memmove(void *to, const void *from, size_t size) { return __wrap_memmove(to, from, size); }
void *__tsan_memset(void *to, int byte, size_t size) { return __wrap_memset(to, byte, size); }
