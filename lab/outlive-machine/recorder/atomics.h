/* Atomics. They are done here, each with its turn in the order of its word, so that the trace has the order in which
 * they were done. A word that is only added to and the like is a counter: its order need not be kept to. One that is
 * also stored to, swapped, or read to acquire what others did may be how threads synchronise. An operation that finds
 * what it found before, with nothing but reads in between, is spinning, and is not recorded. All this goes for atomics on somebody's
 * stack, too: a trace has no values of these, but threads synchronise by them. */

#define A_SEQ_CST 5

#define NO_WORD UINT64_MAX

/* The word of shared memory at an address, or that there is none. */
HIDDEN uint64_t word_at(uintptr_t address) {
    uint64_t word;
    return shared_word(address, &word) ? word : NO_WORD;
}

HIDDEN bool acquires(int order) { return order == 1 || order == 2 || order >= 4; }
HIDDEN bool releases(int order) { return order >= 3; }

/* Whether the thread does again what it did last, without any effect. */
HIDDEN bool spins_at(struct thread *t, uintptr_t address, uint64_t value) {
    if (t->spin_at != address || t->spin_volatile || t->store_size || t->spin_value != value)
        return false;
    t->spins++;
    t->queued = 0;
    return true;
}

HIDDEN void may_spin_at(struct thread *t, uintptr_t address, uint64_t value) {
    t->spin_at = address;
    t->spin_value = value;
    t->spin_volatile = false;
    t->spins = 0;
}

/* What came before the operation, now that something has happened. */
HIDDEN void spun(struct thread *t, uintptr_t address) {
    if (t->spin_at == address && t->spins) {
        t->queued = 0;
        __atomic_store_n(&R.spins, 1, __ATOMIC_RELAXED);
    }
    settle(t);
}

HIDDEN unsigned mask_of(uintptr_t address, size_t size) { return (0xffu >> (8 - size)) << (address & 7); }

HIDDEN void put_load(struct thread *t, struct object *o, uint64_t turn, uintptr_t address, uint64_t word, uint64_t value,
                     int order) {
    spun(t, address);
    event2(t, AWAIT, o->order, turn);
    gap(t);
    load_of(t, address);
    if (acquires(order)) {
        if (word != NO_WORD)
            word_event(t, ACQUIRE, word);
        R.order_needed[o->order] = 1;
    }
    may_spin_at(t, address, value);
}

HIDDEN void put_store(struct thread *t, struct object *o, uint64_t turn, uintptr_t address, uint64_t word, size_t size,
                      uint64_t whole, int order) {
    if (releases(order) && word != NO_WORD)
        word_event(t, RELEASE, word);
    event2(t, AWAIT, o->order, turn);
    gap(t);
    if (word != NO_WORD)
        store_event(t, word, mask_of(address, size), whole);
    else
        private_event(t, true, address);
    event1(t, ADVANCE, o->order);
    if (order == A_SEQ_CST)
        event0(t, FENCE);
    R.order_needed[o->order] = 1;
}

/* The stores that the thread has announced must be read before the operation lets others see them: so `settle` comes
 * before. But not what it has read: that may turn out to be spinning. */
HIDDEN void settle_store(struct thread *t) {
    if (t->store_size)
        settle(t);
}

HIDDEN void put_change(struct thread *t, struct object *o, uint64_t turn, uintptr_t address, uint64_t word, size_t size,
                       unsigned kind, uint64_t read, uint64_t written, int order) {
    unsigned shift = 8 * (address & 7);
    spun(t, address);
    if (releases(order) && word != NO_WORD)
        word_event(t, RELEASE, word);
    event2(t, AWAIT, o->order, turn);
    gap(t);
    if (word != NO_WORD) {
        atomic_event(t, kind, word, mask_of(address, size), read << shift, written << shift);
    } else {
        private_event(t, false, address);
        private_event(t, true, address);
    }
    if (kind != 7)
        event1(t, ADVANCE, o->order);
    if (acquires(order) && word != NO_WORD)
        word_event(t, ACQUIRE, word);
    if (read == written)
        may_spin_at(t, address, read);
    if (kind == 0 || kind >= 6)
        R.order_needed[o->order] = 1;
}

/* `act` sets old and new. */
#define CHANGE(type, name, kind, expression) \
    type __tsan_atomic##name(volatile type *at, type value, int order) { \
        struct thread *t = enter(); \
        uintptr_t address = (uintptr_t)at; \
        type old, new; \
        if (t) \
            settle_store(t); \
        struct object *o = t ? atomic_at(address) : NULL; \
        if (o) \
            spin_lock(&o->lock); \
        old = __atomic_load_n(at, __ATOMIC_SEQ_CST); \
        do \
            new = (type)(expression); \
        while (!__atomic_compare_exchange_n(at, &old, new, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
        if (o) { \
            bool again = old == new && spins_at(t, address, old); \
            uint64_t turn = o->turns; \
            if (!again) \
                __atomic_store_n(&o->turns, turn + 1, __ATOMIC_SEQ_CST); \
            spin_unlock(&o->lock); \
            if (!again) \
                put_change(t, o, turn, address, word_at(address), sizeof old, kind, old, new, order); \
            release(t); \
        } \
        return old; \
    }

#define SWAP(type, bits) \
    static bool swap##bits(volatile type *at, type *expected, type desired, int order) { \
        struct thread *t = enter(); \
        uintptr_t address = (uintptr_t)at; \
        if (t) \
            settle_store(t); \
        struct object *o = t ? atomic_at(address) : NULL; \
        if (o) \
            spin_lock(&o->lock); \
        type old = *expected; \
        bool swapped = __atomic_compare_exchange_n(at, &old, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
        if (o) { \
            bool again = !swapped && spins_at(t, address, old); \
            uint64_t turn = o->turns; \
            if (swapped) \
                __atomic_store_n(&o->turns, turn + 1, __ATOMIC_SEQ_CST); \
            spin_unlock(&o->lock); \
            if (!again) \
                put_change(t, o, turn, address, word_at(address), sizeof old, swapped ? 6 : 7, old, \
                           swapped ? desired : old, order); \
            release(t); \
        } \
        if (!swapped) \
            *expected = old; \
        return swapped; \
    } \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type *at, type *expected, type desired, int order, int otherwise) { \
        (void)otherwise; \
        return swap##bits(at, expected, desired, order); \
    } \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type *at, type *expected, type desired, int order, int otherwise) { \
        (void)otherwise; \
        return swap##bits(at, expected, desired, order); \
    } \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected, type desired, int order, int otherwise) { \
        (void)otherwise; \
        swap##bits(at, &expected, desired, order); \
        return expected; \
    }

#define ATOMICS(type, bits) \
    type __tsan_atomic##bits##_load(const volatile type *at, int order) { \
        struct thread *t = enter(); \
        uintptr_t address = (uintptr_t)at; \
        if (!t) \
            return __atomic_load_n(at, __ATOMIC_SEQ_CST); \
        settle_store(t); \
        struct object *o = atomic_at(address); \
        spin_lock(&o->lock); \
        type value = __atomic_load_n(at, __ATOMIC_SEQ_CST); \
        uint64_t turn = o->turns; \
        spin_unlock(&o->lock); \
        if (!spins_at(t, address, value)) \
            put_load(t, o, turn, address, word_at(address), value, order); \
        release(t); \
        return value; \
    } \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order) { \
        struct thread *t = enter(); \
        uintptr_t address = (uintptr_t)at; \
        if (!t) { \
            __atomic_store_n(at, value, __ATOMIC_SEQ_CST); \
            return; \
        } \
        settle(t); \
        struct object *o = atomic_at(address); \
        spin_lock(&o->lock); \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST); \
        uint64_t whole = value_at(address); \
        uint64_t turn = o->turns; \
        __atomic_store_n(&o->turns, turn + 1, __ATOMIC_SEQ_CST); \
        spin_unlock(&o->lock); \
        put_store(t, o, turn, address, word_at(address), sizeof value, whole, order); \
        release(t); \
    } \
    CHANGE(type, bits##_exchange, 0, value) \
    CHANGE(type, bits##_fetch_add, 1, old + value) \
    CHANGE(type, bits##_fetch_sub, 1, old - value) \
    CHANGE(type, bits##_fetch_or, 2, old | value) \
    CHANGE(type, bits##_fetch_and, 3, old & value) \
    CHANGE(type, bits##_fetch_xor, 4, old ^ value) \
    CHANGE(type, bits##_fetch_nand, 5, ~(old & value)) \
    SWAP(type, bits)

ATOMICS(uint8_t, 8)
ATOMICS(uint16_t, 16)
ATOMICS(uint32_t, 32)
ATOMICS(uint64_t, 64)

void __tsan_atomic_thread_fence(int order) {
    struct thread *t = enter();
    if (t) {
        settle(t);
        if (order == A_SEQ_CST)
            event0(t, FENCE);
        release(t);
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void __tsan_atomic_signal_fence(int order) {
    (void)order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
