/* Memory ordering on mapped pages, as four small functions.
 *
 * A slot is published by one release store and read by one acquire load: whoever sees the flag sees
 * every byte that was written before it.  On x86-64 both are plain moves; on aarch64 they are stlr and
 * ldar.  Slots are 16 bytes and 16-aligned inside a page, so every 8-byte half is naturally aligned.
 */
#ifndef SERAI_ATOMICS_H
#define SERAI_ATOMICS_H
#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "serai supports Linux on x86-64 and aarch64"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "serai supports little-endian machines"
#endif
#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static inline uint64_t load_acquire(const void *p) { return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE); }
static inline void store_release(void *p, uint64_t v) { __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE); }
static inline void store_flag(void *p, uint8_t v) { __atomic_store_n((uint8_t *)p, v, __ATOMIC_RELEASE); }
static inline int claim_zero(void *p, uint64_t v) {
    uint64_t zero = 0;
    return __atomic_compare_exchange_n((uint64_t *)p, &zero, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
}
/* Makes a byte's page present and writable without changing it, also while somebody else writes there. */
static inline void touch(void *p) { __atomic_fetch_or((uint8_t *)p, 0, __ATOMIC_RELAXED); }
static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ __volatile__("yield");
#endif
}
#endif
