/*
 * Preloaded before libc: counts the allocations of a program, and the bytes that they ask for. At exit it writes both
 * to the file that ALLOCATION_COUNTS names, followed by a dot and the process id, since child processes inherit it.
 */
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static atomic_ullong calls, bytes;

static void count(size_t size) {
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&bytes, size, memory_order_relaxed);
}

void *malloc(size_t size) {
    count(size);
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    count(number * size);
    return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size) {
    size_t had = malloc_usable_size(old);
    count(size > had ? size - had : 0);
    return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size) {
    count(size);
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size) {
    void *found = memalign(alignment, size);
    if (!found) return ENOMEM;
    *result = found;
    return 0;
}

__attribute__((destructor)) static void report(void) {
    const char *prefix = getenv("ALLOCATION_COUNTS");
    char path[4096];
    if (!prefix || snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid()) >= (int)sizeof path) return;
    unsigned long long total = atomic_load(&calls), asked = atomic_load(&bytes);
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "%llu %llu\n", total, asked);
    fclose(file);
}
