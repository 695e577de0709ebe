/* Eight floats at a time, in the vector extension that GCC and clang share; the compiler turns it
 * into what the processor has (two SSE or NEON registers, one AVX2 register). A file for processors
 * with AVX-512 alone may take sixteen: it defines LANES first. */

#ifndef GRAPHORMER_VECTOR_H
#define GRAPHORMER_VECTOR_H

#include <stdint.h>

#define EIGHT 8
#ifndef LANES
#define LANES EIGHT
#endif

typedef float eights __attribute__((vector_size(4 * EIGHT), aligned(4), may_alias));
typedef float floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

#define EXPORT __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))

/* A function is compiled in several forms, and the best that can run here and is not above
 * `most_form` is taken. `limit_form` of team.c sets this limit; at first there is none. */
enum { BASIC_FORM, AVX2_FORM, AVX512_FORM };
extern HIDDEN int most_form;

/* Exports a function whose body is the inline function `NAME_body`, compiled again for x86
 * processors with AVX2 and FMA, and for those with AVX-512, which has twice as many registers.
 * Other processors have only one form: the compiler's default has what all of their kind have. */
#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl")))
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#define HAS_AVX512                                                                        \
    (HAS_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && \
     __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
#define EXPORT_FOR_EACH_PROCESSOR(name, parameters, arguments)                              \
    AVX512 static int name##_avx512 parameters { return name##_body arguments; }            \
    AVX2 static int name##_avx2 parameters { return name##_body arguments; }                \
    EXPORT int name parameters {                                                            \
        const int form = chosen_form();                                                     \
        if (form == AVX512_FORM) return name##_avx512 arguments;                            \
        if (form == AVX2_FORM) return name##_avx2 arguments;                                \
        return name##_body arguments;                                                       \
    }
#else
#define HAS_AVX2 0
#define HAS_AVX512 0
#define EXPORT_FOR_EACH_PROCESSOR(name, parameters, arguments) \
    EXPORT int name parameters { return name##_body arguments; }
#endif

INLINE int chosen_form(void) {
    if (HAS_AVX512 && most_form >= AVX512_FORM) return AVX512_FORM;
    return HAS_AVX2 && most_form >= AVX2_FORM ? AVX2_FORM : BASIC_FORM;
}

INLINE floats load(const float *from) { return *(const floats *)from; }

INLINE void store(float *to, floats values) { *(floats *)to = values; }

INLINE eights load_eight(const float *from) { return *(const eights *)from; }

INLINE void store_eight(float *to, eights values) { *(eights *)to = values; }

/* Store the first `count` numbers. */
INLINE void store_first(float *to, floats values, int count) {
    const eights *part = (const eights *)&values; /* what is copied in one piece stays in a register */
    for (int first = 0; first < count && first < LANES; first += EIGHT, part++)
        __builtin_memcpy(to + first, part, 4 * (count - first < EIGHT ? count - first : EIGHT));
}

/* Have `count` numbers brought into the cache. */
INLINE void prefetch(const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(from + i);
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t eight_ints __attribute__((vector_size(4 * EIGHT)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (eight_ints){__VA_ARGS__})
#endif

/* Transpose eight rows of eight numbers. */
INLINE void transpose(eights r[EIGHT]) {
    eights a[EIGHT], b[EIGHT];
#pragma GCC unroll 4
    for (int i = 0; i < EIGHT; i += 2) {
        a[i] = SHUFFLE(r[i], r[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        a[i + 1] = SHUFFLE(r[i], r[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < EIGHT; i += 4)
#pragma GCC unroll 2
        for (int k = i; k < i + 2; k++) {
            b[k] = SHUFFLE(a[k], a[k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            b[k + 2] = SHUFFLE(a[k], a[k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = SHUFFLE(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = SHUFFLE(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

INLINE floats all_equal(float value) { return value - (floats){0}; }

INLINE floats choose(ints condition, floats yes, floats no) {
    return (floats)((condition & (ints)yes) | (~condition & (ints)no));
}

INLINE floats larger(floats a, floats b) { return choose(a > b, a, b); }

/* e^x for x <= 0, to 2 units in the last place; NaN stays NaN. x = n ln 2 + r with |r| <= ln(2)/2,
 * a polynomial for e^r, and n into the exponent. */
INLINE floats exponential(floats x) {
    x = choose(x < -87.0f, all_equal(-87.0f), x);
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    floats n = (x * 1.44269504f + shift) - shift;
    floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    /* Taylor's polynomial of degree 7, by Estrin's scheme: short chains of operations. */
    floats r2 = r * r;
    floats low = (1.0f + r) + r2 * (0.5f + r * (1.0f / 6));
    floats high = (1.0f / 24 + r * (1.0f / 120)) + r2 * (1.0f / 720 + r * (1.0f / 5040));
    floats y = low + (r2 * r2) * high;
    ints exponent = (__builtin_convertvector(n, ints) + 127) << 23;
    return y * (floats)exponent;
}

/* Dropout: element number `counter + lane` is kept or not by a hash of the number and a seed, so
 * backward can ask again instead of keeping a mask. */
typedef struct {
    uint32_t seed[2];
    uint32_t threshold; /* kept if the hash is at least this: probability * 2^32 */
    float scale;        /* 1 / (1 - probability) */
} Dropout;

/* The mixing function "lowbias32" of Wellons (2018), with half of the seed between its rounds. */
INLINE words hashed(words x, const uint32_t *seed) {
    x += seed[0];
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x ^= seed[1];
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

INLINE floats dropped(floats values, const Dropout *dropout, uint32_t counter) {
#if LANES == EIGHT
    const words lane = {0, 1, 2, 3, 4, 5, 6, 7};
#else
    const words lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#endif
    ints kept = (ints)(hashed(lane + counter, dropout->seed) >= dropout->threshold);
    return (floats)(kept & (ints)(values * dropout->scale));
}

#endif
