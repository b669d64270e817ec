/*
 * PMDK's libpmemobj, with names that Rust can call. The library is opened at run time, because it reads its
 * environment when it is loaded: first it is told that memory needs no flush, as ours is told.
 */

#define PMEMOBJ_DIRECT_NON_INLINE
#include <dlfcn.h>
#include <libpmemobj.h>
#include <stddef.h>

static PMEMobjpool *(*create)(const char *, const char *, size_t, mode_t);
static void (*close_pool)(PMEMobjpool *);
static PMEMoid (*root)(PMEMobjpool *, size_t);
static void *(*direct)(PMEMoid);
static int (*alloc)(PMEMobjpool *, PMEMoid *, size_t, uint64_t, pmemobj_constr, void *);
static void (*free_block)(PMEMoid *);

/* 0 if the library is there. */
int outlive_pmemobj_load(void) {
    void *library = dlopen("libpmemobj.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return -1;
    *(void **)&create = dlsym(library, "pmemobj_create");
    *(void **)&close_pool = dlsym(library, "pmemobj_close");
    *(void **)&root = dlsym(library, "pmemobj_root");
    *(void **)&direct = dlsym(library, "pmemobj_direct");
    *(void **)&alloc = dlsym(library, "pmemobj_alloc");
    *(void **)&free_block = dlsym(library, "pmemobj_free");
    return create && close_pool && root && direct && alloc && free_block ? 0 : -1;
}

void *outlive_pmemobj_create(const char *path, size_t size) {
    return create(path, "outlive-study", size, 0600);
}

void outlive_pmemobj_close(void *pool) {
    close_pool(pool);
}

/* An array of cells in the pool, each of which can name a block. */
void *outlive_pmemobj_cells(void *pool, size_t count) {
    return direct(root(pool, count * sizeof(PMEMoid)));
}

/* Allocates into a cell, in one step that survives its caller; 0 if that worked. */
int outlive_pmemobj_allocate(void *pool, void *cells, size_t cell, size_t bytes) {
    return alloc(pool, (PMEMoid *)cells + cell, bytes, 0, NULL, NULL);
}

void outlive_pmemobj_free(void *cells, size_t cell) {
    free_block((PMEMoid *)cells + cell);
}
