/* The tiles of tiles.h, in a file of their own: each processor's form of them is long. */

#include "tiles.h"

#define UNROLLED _Pragma("GCC unroll 16")
#define MOST_ROWS 14

INLINE void store_columns(float *to, wides values, int64_t columns) {
    if (columns >= WIDE) {
        *(wides *)to = values;
        return;
    }
    memcpy(to, &values, sizeof(float) * LANES);
    for (int64_t column = LANES; column < columns; column++) to[column] = values[column];
}

INLINE void store_half(float *to, floats values, int64_t columns) {
    if (columns >= LANES) store(to, values);
    else
        for (int64_t column = 0; column < columns; column++) to[column] = values[column];
}

/* A tile of m rows and n vectors, and half a vector if `half`: sum over `depth` of
 * from(i, k) panel[k], i at `row` and k at `step` floats from each other; then to `to`, or added to
 * what is there. */
INLINE void tile(const float *from, int64_t row, int64_t step, const float *panel, int64_t depth,
                 const float *bias, float *to, int64_t stride, int64_t columns, int adding, int m,
                 int n, int half) {
    const int64_t width = n * WIDE + half * LANES;
    wides sums[MOST_ROWS][MOST_VECTORS];
    floats last[MOST_ROWS];
    UNROLLED for (int i = 0; i < m; i++) {
        UNROLLED for (int j = 0; j < n; j++)
            sums[i][j] = bias ? *(const wides *)(bias + j * WIDE) : (wides){0};
        if (half) last[i] = bias ? load(bias + n * WIDE) : (floats){0};
    }
    for (int64_t k = 0; k < depth; k++) {
        wides other[MOST_VECTORS];
        floats other_last;
        UNROLLED for (int j = 0; j < n; j++) other[j] = *(const wides *)(panel + k * width + j * WIDE);
        if (half) other_last = load(panel + k * width + n * WIDE);
        UNROLLED for (int i = 0; i < m; i++) {
            const float value = from[i * row + k * step];
            UNROLLED for (int j = 0; j < n; j++) sums[i][j] += value * other[j];
            if (half) last[i] += value * other_last;
        }
    }
    UNROLLED for (int i = 0; i < m; i++) {
        float *at = to + i * stride;
        UNROLLED for (int j = 0; j < n; j++) {
            if (adding) *(wides *)(at + j * WIDE) += sums[i][j];
            else store_columns(at + j * WIDE, sums[i][j], columns - j * WIDE);
        }
        if (half) {
            if (adding) *(floats *)(at + n * WIDE) += last[i];
            else store_half(at + n * WIDE, last[i], columns - n * WIDE);
        }
    }
}

/* All of `count` rows against one panel, m rows at a time and the rest one by one. */
INLINE void strip(const Strip *s, int64_t count, int m, int n, int half) {
    int64_t i = 0;
    for (; i + m <= count; i += m)
        tile(s->from + i * s->row, s->row, s->step, s->panel, s->depth, s->bias,
             s->to + i * s->stride, s->stride, s->columns, s->adding, m, n, half);
    for (; i < count; i++)
        tile(s->from + i * s->row, s->row, s->step, s->panel, s->depth, s->bias,
             s->to + i * s->stride, s->stride, s->columns, s->adding, 1, n, half);
}

/* Tall tiles fill the 32 registers of AVX-512; elsewhere they would be moved to memory and back. */
INLINE void any_strip_body(const Strip *s, int64_t count, int64_t vectors, int tall) {
    const int half = half_is_enough(s->columns, vectors);
    switch (2 * vectors - half) {
        case 1: strip(s, count, tall ? 14 : 2, 0, 1); break;
        case 2: strip(s, count, tall ? 14 : 2, 1, 0); break;
        case 3: strip(s, count, tall ? 10 : 2, 1, 1); break;
        case 4: strip(s, count, tall ? 10 : 2, 2, 0); break;
        case 5: strip(s, count, tall ? 8 : 2, 2, 1); break;
        case 6: strip(s, count, tall ? 8 : 2, 3, 0); break;
        case 7: strip(s, count, tall ? 6 : 2, 3, 1); break;
        case 8: strip(s, count, tall ? 6 : 2, 4, 0); break;
        case 9: strip(s, count, tall ? 5 : 2, 4, 1); break;
        default: strip(s, count, tall ? 5 : 2, 5, 0); break;
    }
}

#if defined(__x86_64__)
AVX512 static void strip_avx512(const Strip *s, int64_t count, int64_t vectors) {
    any_strip_body(s, count, vectors, 1);
}
AVX2 static void strip_avx2(const Strip *s, int64_t count, int64_t vectors) {
    any_strip_body(s, count, vectors, 0);
}
#endif

void any_strip(const Strip *s, int64_t count, int64_t vectors) {
#if defined(__x86_64__)
    const int form = chosen_form();
    if (form == AVX512_FORM) return strip_avx512(s, count, vectors);
    if (form == AVX2_FORM) return strip_avx2(s, count, vectors);
#endif
    any_strip_body(s, count, vectors, 0);
}
