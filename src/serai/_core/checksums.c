/* CRC-32C (Castagnoli) and CRC-32 (IEEE): one idea, four speeds, every constant computed from P.
 *
 * A message is a polynomial over GF(2) and its checksum the remainder of message * x^32 modulo P.  Both checksums are
 * reflected: the first bit of the message, the lowest bit of its first byte, is the highest power of x.  So bit i of a
 * 16-byte block loaded little endian stands for x^(127 - i), and bit i of a 32-bit remainder for x^(31 - i).
 *
 *      |<- r ->|<---- 16 ---->|<---- 16 ---->|  ...  |<---- 16 ---->|        r = 1..16
 *      [ first ][ block k - 1 ][ block k - 2 ]  ...  [   block 0    ]
 *        * x^(128 k)    * x^(128 (k - 1))                 * 1             sum = 16 bytes with the message's remainder
 *
 * Folding.  A block that lies j blocks before the end counts for block * x^(128 j).  Write it as H * x^64 + L, H being
 * its first eight bytes: modulo P that is H * (x^(128 j + 64) mod P) + L * (x^(128 j) mod P), two carry-less products
 * that fit in 128 bits again.  All blocks are independent, so a processor multiplies them side by side.  Zeros in
 * front of a message do not change its remainder; therefore the odd bytes are put first, behind zeros, and there is
 * no tail to walk through byte by byte.
 *
 * Constants.  The product of two reflected 64-bit numbers comes out one bit low: it stands for a * b * x.  The stored
 * factors are x^(128 j + 63) and x^(128 j - 1) for that reason; even j = 0 makes sense, because P has a constant term
 * and so x^-1 exists modulo P.  `describe` computes them all from P by multiplying by x, again and again.
 *
 * Reduction.  The last 16 bytes H * x^64 + L become W = H * (x^96 mod P) + L * x^32, 96 bits.  Division from the
 * highest power down is, reflected, elimination from the lowest bit up: with I = 1 / P as a power series modulo 2^64,
 * Q = low64(W * I) makes the low 64 bits of W + Q * P vanish; the 32 bits above them are the remainder.  Processors
 * with a CRC instruction for this polynomial use that instead, two steps of eight bytes.
 *
 * Levels, chosen at run time; only functions marked with a target use more than the base architecture:
 *      portable   eight tables (slicing by 8), any processor
 *      crc        CRC instructions, eight bytes at a time (x86-64 SSE4.2: CRC-32C only)
 *      fold128    PCLMULQDQ or PMULL as above
 *      fold512    four blocks to an instruction: VPCLMULQDQ with AVX-512
 *
 * Invariants
 * - every level gives the same number for the same bytes, whatever their alignment and however they are cut
 * - no level reads a byte outside [p, p + n)
 * - the tables are complete before the level that reads them is published
 */
#include "crc.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_acle.h>
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum { CASTAGNOLI = 0, IEEE = 1 };
enum { PORTABLE = 0, CRC = 1, FOLD128 = 2, FOLD512 = 3 };
enum { FARTHEST = 31 }; /* blocks; the distances 0..31 are tabulated */

/* Bytes at which the next way becomes the faster one; measured with benchmarks/crc.py on Zen 5. */
enum {
    STEPS_MAX = 80, /* 80 bytes of CRC-32C: 3.4 ns (8.2 in a chain) by instruction, 3.6 (10.4) or more by folding */
    ZMM_MIN = 64,   /* 64 bytes of CRC-32: 3.7 ns by fold512, 5.1 by fold128 */
    SUMS_MIN = 272, /* above this, one factor for each block costs more loads than eight running sums */
};

struct factors {
    uint64_t first, second; /* for the first and the second eight bytes of a block */
};

struct polynomial {
    struct factors far[FARTHEST + 1] __attribute__((aligned(64))); /* [FARTHEST - j]: a block j blocks before the end */
    uint64_t x96;           /* x^96 mod P, bit i for x^(32 - i) */
    uint64_t p;             /* P itself, bit i for x^(32 - i) */
    uint64_t inverse;       /* 1 / p as a power series, 64 terms */
    uint32_t slice[8][256]; /* [k][b]: byte b followed by k zero bytes */
};

static struct polynomial polynomials[2];

INLINE uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

INLINE uint32_t load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* The 1..8 bytes at p as one word, behind zeros, with the state added to its first four bytes. */
INLINE uint64_t behind_zeros(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t v;
    if (n >= 4)
        v = load32(p) | (uint64_t)load32(p + n - 4) << (8 * n - 32);
    else
        v = p[0] | (uint64_t)p[n >> 1] << 8 * (n >> 1) | (uint64_t)p[n - 1] << 8 * (n - 1);
    return (v ^ crc) << (64 - 8 * n);
}

/* What is left of the state behind n bytes, 1..8; shifted twice, because one shift by 64 is undefined. */
INLINE uint32_t beyond(uint32_t crc, size_t n) { return (uint32_t)((uint64_t)crc >> 4 * n >> 4 * n); }

/* ---- Constants ------------------------------------------------------------------------------------------------- */

/* v * x^count mod P */
static uint32_t times_x(uint32_t v, uint32_t reflected, int count) {
    while (count-- > 0) v = (v >> 1) ^ (v & 1 ? reflected : 0);
    return v;
}

/* 1 / p: long division, lowest bit first. */
static uint64_t inverse(uint64_t p) {
    uint64_t rest = 1, quotient = 0;
    for (int i = 0; i < 64; i++, rest >>= 1) {
        if (rest & 1) {
            quotient |= 1ull << i;
            rest ^= p;
        }
    }
    return quotient;
}

/* Stores nothing but final values, see serai_crc_init. */
static void describe(struct polynomial *poly, uint32_t reflected) {
    uint32_t power = reflected << 1 | 1; /* x^-1: one step of times_x turns it into 1, which is bit 31 */
    for (int j = 0; j <= FARTHEST; j++) {
        struct factors *far = &poly->far[FARTHEST - j];
        far->second = (uint64_t)power << 32; /* x^(128 j - 1) */
        power = times_x(power, reflected, 64);
        far->first = (uint64_t)power << 32; /* x^(128 j + 63) */
        power = times_x(power, reflected, 64);
    }
    poly->x96 = (uint64_t)times_x(1u << 31, reflected, 96) << 1;
    poly->p = (uint64_t)reflected << 1 | 1;
    poly->inverse = inverse(poly->p);
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t v = times_x(byte, reflected, 8);
        for (int k = 0; k < 8; k++, v = times_x(v, reflected, 8)) poly->slice[k][byte] = v;
    }
}

/* Inside, `crc` comes and goes inverted; this is a level's function as the rest of the world calls it. */
#define OUTSIDE(name, target, inside, which) \
    target static uint32_t name(uint32_t crc, const void *p, size_t n) { return ~inside(which, ~crc, p, n); }

/* ---- Portable: slicing by 8 ------------------------------------------------------------------------------------- */

INLINE uint32_t portable(int which, uint32_t crc, const uint8_t *p, size_t n) {
    uint32_t(*t)[256] = polynomials[which].slice;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v = load64(p) ^ crc;
        crc = t[7][v & 255] ^ t[6][v >> 8 & 255] ^ t[5][v >> 16 & 255] ^ t[4][v >> 24 & 255] ^ t[3][v >> 32 & 255] ^
              t[2][v >> 40 & 255] ^ t[1][v >> 48 & 255] ^ t[0][v >> 56];
    }
    for (; n > 0; p++, n--) crc = crc >> 8 ^ t[0][(crc ^ *p) & 255];
    return crc;
}

OUTSIDE(portable_c, , portable, CASTAGNOLI)
OUTSIDE(portable_i, , portable, IEEE)

/* ---- What each architecture has: a 16-byte vector, its fold, and eight CRC steps --------------------------------- */

#if defined(__x86_64__)

#define CRC_TARGET __attribute__((target("sse4.2")))
#define FOLD_TARGET __attribute__((target("sse4.2,pclmul")))
#define HAS_STEPS(which) ((which) == CASTAGNOLI)
#define WIDE_TARGET __attribute__((target("sse4.2,pclmul,avx512f,avx512bw,avx512vl,avx512vbmi2,vpclmulqdq")))

typedef __m128i vector;

CRC_TARGET INLINE uint32_t step64(int which, uint32_t crc, uint64_t v) {
    (void)which; /* SSE4.2 knows CRC-32C only */
    return (uint32_t)_mm_crc32_u64(crc, v);
}

FOLD_TARGET INLINE vector load(const void *p) { return _mm_loadu_si128(p); }
FOLD_TARGET INLINE vector sum(vector a, vector b) { return _mm_xor_si128(a, b); }
FOLD_TARGET INLINE vector from32(uint32_t v) { return _mm_cvtsi32_si128((int)v); }
FOLD_TARGET INLINE vector choose(vector v, vector bytes) { return _mm_shuffle_epi8(v, bytes); }
FOLD_TARGET INLINE vector fold(vector v, vector factors) {
    return sum(_mm_clmulepi64_si128(v, factors, 0x00), _mm_clmulepi64_si128(v, factors, 0x11));
}

/* The remainder of the 96 bits W, or of eight bytes with zeros above them. */
FOLD_TARGET INLINE uint32_t eliminate(const struct polynomial *poly, vector w) {
    vector divisor = _mm_set_epi64x((int64_t)poly->p, (int64_t)poly->inverse);
    vector q = _mm_clmulepi64_si128(w, divisor, 0x00);
    return (uint32_t)_mm_extract_epi32(sum(w, _mm_clmulepi64_si128(q, divisor, 0x10)), 2);
}

FOLD_TARGET INLINE uint32_t reduce(int which, vector v) {
    const struct polynomial *poly = &polynomials[which];
    if (which == CASTAGNOLI)
        return step64(which, step64(which, 0, (uint64_t)_mm_cvtsi128_si64(v)), (uint64_t)_mm_extract_epi64(v, 1));
    vector high = _mm_clmulepi64_si128(v, _mm_cvtsi64_si128((int64_t)poly->x96), 0x00);
    return eliminate(poly, sum(high, _mm_srli_si128(v, 8)));
}

#else

#define CRC_TARGET __attribute__((target("+crc")))
#define FOLD_TARGET __attribute__((target("+crc+crypto")))
#define HAS_STEPS(which) 1

typedef uint8x16_t vector;

CRC_TARGET INLINE uint32_t step64(int which, uint32_t crc, uint64_t v) {
    return which == CASTAGNOLI ? __crc32cd(crc, v) : __crc32d(crc, v);
}

FOLD_TARGET INLINE vector load(const void *p) { return vld1q_u8(p); }
FOLD_TARGET INLINE vector sum(vector a, vector b) { return veorq_u8(a, b); }
FOLD_TARGET INLINE vector from32(uint32_t v) { return vreinterpretq_u8_u32(vsetq_lane_u32(v, vdupq_n_u32(0), 0)); }
FOLD_TARGET INLINE vector choose(vector v, vector bytes) { return vqtbl1q_u8(v, bytes); }
FOLD_TARGET INLINE vector fold(vector v, vector factors) {
    poly64x2_t a = vreinterpretq_p64_u8(v), b = vreinterpretq_p64_u8(factors);
    return sum(vreinterpretq_u8_p128(vmull_p64(vgetq_lane_p64(a, 0), vgetq_lane_p64(b, 0))),
               vreinterpretq_u8_p128(vmull_high_p64(a, b)));
}

FOLD_TARGET INLINE uint32_t reduce(int which, vector v) {
    uint64x2_t halves = vreinterpretq_u64_u8(v);
    return step64(which, step64(which, 0, vgetq_lane_u64(halves, 0)), vgetq_lane_u64(halves, 1));
}

#endif

/* ---- CRC instructions ------------------------------------------------------------------------------------------- */

/* As with folding, the odd bytes go first. */
CRC_TARGET INLINE uint32_t stepwise(int which, uint32_t crc, const uint8_t *p, size_t n) {
    if (n == 0) return crc;
    if (n < 8) return step64(which, 0, behind_zeros(crc, p, n)) ^ beyond(crc, n);
    size_t r = (n - 1) % 8 + 1;
    crc = step64(which, 0, (load64(p) ^ crc) << (64 - 8 * r)) ^ beyond(crc, r);
    for (p += r, n -= r; n > 0; p += 8, n -= 8) crc = step64(which, crc, load64(p));
    return crc;
}

OUTSIDE(stepwise_c, CRC_TARGET, stepwise, CASTAGNOLI)
#if defined(__aarch64__)
OUTSIDE(stepwise_i, CRC_TARGET, stepwise, IEEE)
#endif

/* ---- Folding ---------------------------------------------------------------------------------------------------- */

/* Loaded at r, `choose` moves the first r bytes to the end, behind zeros; at 16 + r, it drops the first r bytes. */
static const uint8_t slide[48] = {
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, /* a zero */
    0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,  /* */
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
};

/* Inputs that are over before folding would begin: by CRC instructions, or up to 16 bytes by one reduction. */
INLINE size_t brief_max(int which) { return HAS_STEPS(which) ? STEPS_MAX : 16; }

FOLD_TARGET INLINE uint32_t brief(int which, uint32_t crc, const uint8_t *p, size_t n) {
    if (HAS_STEPS(which)) return stepwise(which, crc, p, n);
#if defined(__x86_64__)
    if (n > 8) {
        uint64_t first = (load64(p) ^ crc) << (128 - 8 * n), second = load64(p + n - 8) ^ beyond(crc, n - 8);
        return reduce(which, _mm_set_epi64x((int64_t)second, (int64_t)first));
    }
    if (n > 0)
        crc = eliminate(&polynomials[which], _mm_cvtsi64_si128((int64_t)behind_zeros(crc, p, n))) ^ beyond(crc, n);
#endif
    return crc;
}

/* From SUMS_MIN bytes on: eight running sums, each moved on by eight blocks at a time. `v` and `next` are the blocks
 * k and k - 1 before the end, p the block after them. */
FOLD_TARGET INLINE vector fold_long(const struct factors *near, vector v, vector next, const uint8_t *p, size_t k) {
    vector s[8] = {v, next};
    for (int i = 2; i < 8; i++, p += 16) s[i] = load(p);
    const vector stride = load(near - 8);
    for (k -= 7; k >= 8; k -= 8, p += 128) /* k: blocks not yet read */
        for (int i = 0; i < 8; i++) s[i] = sum(fold(s[i], stride), load(p + 16 * i));
    const struct factors *far = near - k - 7;
    v = fold(s[0], load(far));
    for (int i = 1; i < 8; i++) v = sum(v, fold(s[i], load(far + i)));
    for (far += 8; far <= near; far++, p += 16) v = sum(v, fold(load(p), load(far)));
    return v;
}

FOLD_TARGET INLINE uint32_t fold128(int which, uint32_t crc, const uint8_t *p, size_t n) {
    if (n <= brief_max(which)) return brief(which, crc, p, n);
    const struct factors *near = &polynomials[which].far[FARTHEST];
    size_t k = (n - 1) / 16, r = n - 16 * k;
    vector start = from32(crc);
    vector v = choose(sum(load(p), start), load(slide + r));
    vector next = sum(load(p + r), choose(start, load(slide + 16 + r))); /* r < 4 leaves some of crc to this block */
    p += r + 16;
    if (n >= SUMS_MIN) return reduce(which, fold_long(near, v, next, p, k));
    const struct factors *far = near - k;
    v = fold(v, load(far++));
    for (; far < near; far++, p += 16) {
        v = sum(v, fold(next, load(far)));
        next = load(p);
    }
    return reduce(which, sum(v, next)); /* the last block is where it belongs */
}

OUTSIDE(fold128_c, FOLD_TARGET, fold128, CASTAGNOLI)
OUTSIDE(fold128_i, FOLD_TARGET, fold128, IEEE)

#if defined(__x86_64__)

typedef __m512i wide;

WIDE_TARGET INLINE wide fold_wide(wide v, wide factors) {
    return _mm512_xor_si512(_mm512_clmulepi64_epi128(v, factors, 0x00), _mm512_clmulepi64_epi128(v, factors, 0x11));
}
WIDE_TARGET INLINE wide add_fold(wide total, wide v, wide factors) { /* one three-way sum */
    return _mm512_ternarylogic_epi64(total, _mm512_clmulepi64_epi128(v, factors, 0x00),
                                     _mm512_clmulepi64_epi128(v, factors, 0x11), 0x96);
}
WIDE_TARGET INLINE vector lanes_sum(wide v) {
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    return sum(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* As fold128, four blocks to a vector; here the first, the odd one, has r = 1..64 bytes and k vectors follow it. */
WIDE_TARGET INLINE uint32_t fold512(int which, uint32_t crc, const uint8_t *p, size_t n) {
    if (n < ZMM_MIN || n <= brief_max(which)) return fold128(which, crc, p, n);
    const struct factors *near = &polynomials[which].far[FARTHEST - 3]; /* the four blocks of the last vector */
    size_t k = (n - 1) / 64, r = n - 64 * k;
    wide start = _mm512_zextsi128_si512(from32(crc));
    wide v = _mm512_maskz_expand_epi8(~0ull << (64 - r), _mm512_xor_si512(_mm512_loadu_si512(p), start));
    if (k == 0) return reduce(which, lanes_sum(fold_wide(v, _mm512_loadu_si512(near))));
    wide next = _mm512_xor_si512(_mm512_loadu_si512(p + r), _mm512_zextsi128_si512(from32(r < 4 ? crc >> 8 * r : 0)));
    p += r + 64;
    if (k >= 8) {
        wide a = v, b = next, c = _mm512_loadu_si512(p), d = _mm512_loadu_si512(p + 64);
        const wide stride = _mm512_broadcast_i32x4(load(near + 3 - 16));
        for (p += 128, k -= 3; k >= 4; k -= 4, p += 256) {
            a = add_fold(_mm512_loadu_si512(p), a, stride);
            b = add_fold(_mm512_loadu_si512(p + 64), b, stride);
            c = add_fold(_mm512_loadu_si512(p + 128), c, stride);
            d = add_fold(_mm512_loadu_si512(p + 192), d, stride);
        }
        const struct factors *far = near - 4 * (k + 3);
        v = add_fold(fold_wide(a, _mm512_loadu_si512(far)), b, _mm512_loadu_si512(far + 4));
        v = add_fold(v, c, _mm512_loadu_si512(far + 8));
        v = add_fold(v, d, _mm512_loadu_si512(far + 12));
        for (far += 16; far <= near; far += 4, p += 64) v = add_fold(v, _mm512_loadu_si512(p), _mm512_loadu_si512(far));
        return reduce(which, lanes_sum(v));
    }
    const struct factors *far = near - 4 * k;
    v = add_fold(fold_wide(v, _mm512_loadu_si512(far)), next, _mm512_loadu_si512(far + 4));
    for (far += 8; far <= near; far += 4, p += 64) v = add_fold(v, _mm512_loadu_si512(p), _mm512_loadu_si512(far));
    return reduce(which, lanes_sum(v));
}

OUTSIDE(fold512_c, WIDE_TARGET, fold512, CASTAGNOLI)
OUTSIDE(fold512_i, WIDE_TARGET, fold512, IEEE)

#endif

/* ---- Choosing --------------------------------------------------------------------------------------------------- */

typedef uint32_t checksum(uint32_t crc, const void *p, size_t n);

static const struct level {
    const char *name;
    checksum *castagnoli, *ieee;
} levels[] = {
    {"portable", portable_c, portable_i},
#if defined(__x86_64__)
    {"crc", stepwise_c, portable_i},
    {"fold128", fold128_c, fold128_i},
    {"fold512", fold512_c, fold512_i},
#else
    {"crc", stepwise_c, stepwise_i},
    {"fold128", fold128_c, fold128_i},
#endif
};

static uint32_t first_c(uint32_t crc, const void *p, size_t n);
static uint32_t first_i(uint32_t crc, const void *p, size_t n);
static const struct level unprepared = {"portable", first_c, first_i};
static const struct level *active = &unprepared; /* replaced with release order, after the tables are there */

static uint32_t first_c(uint32_t crc, const void *p, size_t n) {
    serai_crc_init();
    return serai_crc32c(crc, p, n);
}

static uint32_t first_i(uint32_t crc, const void *p, size_t n) {
    serai_crc_init();
    return serai_crc32(crc, p, n);
}

int serai_crc_levels(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2")) return CRC;
    if (!__builtin_cpu_supports("pclmul")) return FOLD128;
    int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2") &&
               __builtin_cpu_supports("vpclmulqdq");
    return wide ? FOLD512 + 1 : FOLD512;
#else
    unsigned long has = getauxval(AT_HWCAP);
    if (!(has & HWCAP_CRC32)) return CRC;
    return has & HWCAP_PMULL ? FOLD128 + 1 : FOLD128;
#endif
}

const char *serai_crc_level_name(int level) { return levels[level].name; }

const char *serai_crc_kind(void) { return __atomic_load_n(&active, __ATOMIC_ACQUIRE)->name; }

/* Two threads may come here at once: both write the same final values, so neither disturbs the other. */
void serai_crc_init(void) {
    if (__atomic_load_n(&active, __ATOMIC_ACQUIRE) != &unprepared) return;
    describe(&polynomials[CASTAGNOLI], 0x82F63B78);
    describe(&polynomials[IEEE], 0xEDB88320);
    __atomic_store_n(&active, &levels[serai_crc_levels() - 1], __ATOMIC_RELEASE);
}

int serai_crc_force(int level) {
    serai_crc_init();
    if (level < 0 || level >= serai_crc_levels()) return -1;
    __atomic_store_n(&active, &levels[level], __ATOMIC_RELEASE);
    return 0;
}

uint32_t serai_crc32c(uint32_t crc, const void *p, size_t n) {
    return __atomic_load_n(&active, __ATOMIC_ACQUIRE)->castagnoli(crc, p, n);
}

uint32_t serai_crc32(uint32_t crc, const void *p, size_t n) {
    return __atomic_load_n(&active, __ATOMIC_ACQUIRE)->ieee(crc, p, n);
}
