/* The program's heap: memory in one place, so that shared data are told by their address; and another one for private
 * data. It replaces the library's for the whole process. Blocks are of some sizes, have 16 bytes before them, and go
 * back to a list. */

#define CLASSES 192
#define MOST_BYTES ((size_t)1 << 40)

struct block {
    uint32_t class;
    uint32_t heap;
    struct block *start; /* this, or what it stands in if it is aligned */
};

static struct heap {
    uintptr_t base;
    size_t size;
    size_t used;
    uint32_t lock;
    struct block *free[CLASSES]; /* lists by `start` */
} heaps[2] __attribute__((aligned(LINE))); /* shared, private */

HIDDEN void will_read(struct thread *t, uintptr_t address, size_t size);
HIDDEN void will_write(struct thread *t, uintptr_t address, size_t size);
HIDDEN void settle(struct thread *t);
HIDDEN struct thread *enter(void);
void *__real_memcpy(void *, const void *, size_t);
void *__real_memset(void *, int, size_t);

/* Four sizes between one power of two and the next. */
HIDDEN size_t size_of_class(uint32_t class) { return (size_t)(4 + class % 4) << (class / 4 + 3); }

HIDDEN uint32_t class_of_size(size_t size) {
    uint32_t class = 0;
    while (class < CLASSES - 4 && size_of_class(class) < size)
        class++;
    return class;
}

HIDDEN void make_heap(struct heap *heap) {
    for (size_t size = (size_t)1 << 38; !heap->base && size >= (size_t)1 << 26; size >>= 1) {
        heap->base = (uintptr_t)reserve(size);
        heap->size = heap->base ? size : 0;
    }
}

/* The heap is used in the recorder and without it, also by threads that are not recorded any more. A handler waits until its thread
 * has done there: it may allocate, too. */
HIDDEN void lock_heap(uint32_t which) {
    if (self) {
        self->in_heap++;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
    spin_lock(&heaps[which].lock);
}

HIDDEN void unlock_heap(uint32_t which) {
    struct thread *t = self;
    spin_unlock(&heaps[which].lock);
    if (t) {
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (--t->in_heap == 0 && __atomic_load_n(&t->busy, __ATOMIC_RELAXED) != 1)
            let_signals_come(t);
    }
}

HIDDEN struct block *take_block(uint32_t which, size_t size, bool *fresh) {
    struct heap *heap = &heaps[which];
    uint32_t class = class_of_size(size);
    lock_heap(which);
    if (!heap->base)
        make_heap(heap);
    struct block *block = heap->free[class];
    *fresh = !block;
    if (block) {
        heap->free[class] = block->start;
    } else if (heap->size - heap->used >= size_of_class(class) + 16) {
        block = (struct block *)(heap->base + heap->used);
        __atomic_store_n(&heap->used, heap->used + size_of_class(class) + 16, __ATOMIC_RELAXED);
    }
    unlock_heap(which);
    if (block)
        *block = (struct block){class, which, block};
    return block;
}

HIDDEN void *allocate(size_t size, size_t alignment, bool *fresh) {
    struct thread *t = self;
    bool apart = t && (t->makes_private || (R.heap_of_main && t->number != 0));
    /* Their sum is a size, too. */
    bool sane = size <= MOST_BYTES && alignment <= MOST_BYTES;
    struct block *block = sane ? take_block(apart, alignment > 16 ? size + alignment : size, fresh) : NULL;
    if (!block) {
        errno = ENOMEM;
        return NULL;
    }
    uintptr_t at = (uintptr_t)(block + 1);
    if (alignment > 16 && at % alignment) {
        at += alignment - at % alignment;
        ((struct block *)at)[-1] = (struct block){block->class, block->heap, block};
    }
    return (void *)at;
}

HIDDEN size_t room(void *at) {
    struct block *header = (struct block *)at - 1;
    return size_of_class(header->class) - (size_t)((char *)header - (char *)header->start);
}

void *malloc(size_t size) {
    bool fresh;
    return allocate(size, 16, &fresh);
}

void free(void *at) {
    if (!at)
        return;
    /* A store to it must be seen before another has the memory. */
    struct thread *t = enter();
    if (t) {
        settle(t);
        release(t);
    }
    struct block *block = ((struct block *)at)[-1].start;
    struct heap *heap = &heaps[block->heap];
    uint32_t which = block->heap;
    lock_heap(which);
    block->start = heap->free[block->class];
    heap->free[block->class] = block;
    unlock_heap(which);
}

void *calloc(size_t count, size_t size) {
    bool fresh;
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    void *at = allocate(bytes, 16, &fresh);
    if (at && !fresh) {
        struct thread *t = bytes ? enter() : NULL;
        if (t) {
            will_write(t, (uintptr_t)at, bytes);
            release(t);
        }
        __real_memset(at, 0, bytes);
    }
    return at;
}

void *realloc(void *at, size_t size) {
    if (!at)
        return malloc(size);
    if (size <= room(at))
        return at;
    void *to = malloc(size);
    if (!to)
        return NULL;
    size_t bytes = room(at);
    struct thread *t = enter();
    if (t) {
        will_read(t, (uintptr_t)at, bytes);
        will_write(t, (uintptr_t)to, bytes);
        release(t);
    }
    __real_memcpy(to, at, bytes);
    free(at);
    return to;
}

int posix_memalign(void **at, size_t alignment, size_t size) {
    bool fresh;
    int before = errno;
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
        return EINVAL;
    void *block = allocate(size, alignment, &fresh);
    errno = before;
    if (!block)
        return ENOMEM;
    *at = block;
    return 0;
}

void *aligned_alloc(size_t alignment, size_t size) {
    bool fresh;
    return allocate(size, alignment, &fresh);
}

void *memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
void *valloc(size_t size) { return aligned_alloc(4096, size); }
void *pvalloc(size_t size) { return aligned_alloc(4096, size > MOST_BYTES ? size : (size + 4095) & ~(size_t)4095); }
size_t malloc_usable_size(void *at) { return at ? room(at) : 0; }

void outlive_private_begin(void) {
    if (self)
        self->makes_private = true;
}

void outlive_private_end(void) {
    if (self)
        self->makes_private = false;
}
