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

/* A tile of m rows from row i on, and of n vectors, and half a vector if `half`: sum over `depth` of
 * from(row, k) panel[k]; then to `to`, or added to what is there. */
INLINE void tile(const Strip *s, int64_t i, int m, int n, int half) {
    const int64_t row = s->row, step = s->step, width = s->width, depth = s->depth;
    const float *from = s->from + i * row, *panel = s->panel, *bias = s->bias;
    wides sums[MOST_ROWS][MOST_VECTORS];
    floats last[MOST_ROWS];
    UNROLLED for (int r = 0; r < m; r++) {
        UNROLLED for (int j = 0; j < n; j++)
            sums[r][j] = bias ? *(const wides *)(bias + j * WIDE) : (wides){0};
        if (half) last[r] = bias ? load(bias + n * WIDE) : (floats){0};
    }
    for (int64_t k = 0; k < depth; k++, from += step, panel += width) {
        wides other[MOST_VECTORS];
        floats other_last;
        UNROLLED for (int j = 0; j < n; j++) other[j] = *(const wides *)(panel + j * WIDE);
        if (half) other_last = load(panel + n * WIDE);
        UNROLLED for (int r = 0; r < m; r++) {
            const float value = from[r * row];
            UNROLLED for (int j = 0; j < n; j++) sums[r][j] += value * other[j];
            if (half) last[r] += value * other_last;
        }
    }
    UNROLLED for (int r = 0; r < m; r++) {
        float *at = s->to + (i + r) * s->stride;
        UNROLLED for (int j = 0; j < n; j++) {
            if (s->adding) *(wides *)(at + j * WIDE) += sums[r][j];
            else store_columns(at + j * WIDE, sums[r][j], s->columns - j * WIDE);
        }
        if (half) {
            if (s->adding) *(floats *)(at + n * WIDE) += last[r];
            else store_half(at + n * WIDE, last[r], s->columns - n * WIDE);
        }
    }
}

/* The same of n vectors of eight floats, one or two, for processors that have none of sixteen. */
INLINE void narrow_tile(const Strip *s, int64_t i, int m, int n) {
    const int64_t row = s->row, step = s->step, width = s->width, depth = s->depth;
    const float *from = s->from + i * row, *panel = s->panel, *bias = s->bias;
    floats sums[MOST_ROWS][2];
    UNROLLED for (int r = 0; r < m; r++)
        UNROLLED for (int j = 0; j < n; j++)
            sums[r][j] = bias ? load(bias + j * LANES) : (floats){0};
    for (int64_t k = 0; k < depth; k++, from += step, panel += width) {
        floats other[2];
        UNROLLED for (int j = 0; j < n; j++) other[j] = load(panel + j * LANES);
        UNROLLED for (int r = 0; r < m; r++) {
            const float value = from[r * row];
            UNROLLED for (int j = 0; j < n; j++) sums[r][j] += value * other[j];
        }
    }
    UNROLLED for (int r = 0; r < m; r++)
        UNROLLED for (int j = 0; j < n; j++) {
            float *to = s->to + (i + r) * s->stride + j * LANES;
            if (s->adding) *(floats *)to += sums[r][j];
            else store_half(to, sums[r][j], s->columns - j * LANES);
        }
}

/* All of `count` rows against one panel, m rows at a time. Of what is left over, the last tile takes
 * rows again that the one before had, with the same result; where they are added up, they go one by
 * one. */
INLINE void strip(const Strip *s, int64_t count, int m, int n, int half, int narrow) {
    const int again = count % m && count >= m && !s->adding;
    const int64_t tiles = count / m + again;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t i = (t + 1) * m <= count ? t * m : count - m;
        if (narrow) narrow_tile(s, i, m, n);
        else tile(s, i, m, n, half);
    }
    for (int64_t i = again ? count : tiles * m; i < count; i++) {
        if (narrow) narrow_tile(s, i, 1, n);
        else tile(s, i, 1, n, half);
    }
}

/* Six rows of two vectors: twelve sums, two vectors of the panel and a value of the left fill 16
 * registers. */
INLINE void any_strip_body(const Strip *s, int64_t count, int64_t vectors) {
    const int64_t width = panel_width(s->columns, vectors);
    for (int64_t first = 0; first < width; first += WIDE) {
        Strip part = *s;
        part.panel += first, part.to += first, part.columns -= first;
        if (part.bias) part.bias += first;
        if (width - first >= WIDE) strip(&part, count, 6, 2, 0, 1);
        else strip(&part, count, 12, 1, 0, 1);
    }
}

#if defined(__x86_64__)
/* Tiles of a whole panel, which fill the 32 registers of sixteen floats. */
AVX512 static void strip_avx512(const Strip *s, int64_t count, int64_t vectors) {
    switch (2 * vectors - half_is_enough(s->columns, vectors)) {
        case 1: strip(s, count, 14, 0, 1, 0); break;
        case 2: strip(s, count, 14, 1, 0, 0); break;
        case 3: strip(s, count, 10, 1, 1, 0); break;
        case 4: strip(s, count, 10, 2, 0, 0); break;
        case 5: strip(s, count, 8, 2, 1, 0); break;
        case 6: strip(s, count, 8, 3, 0, 0); break;
        case 7: strip(s, count, 6, 3, 1, 0); break;
        case 8: strip(s, count, 6, 4, 0, 0); break;
        case 9: strip(s, count, 5, 4, 1, 0); break;
        default: strip(s, count, 5, 5, 0, 0); break;
    }
}
AVX2 static void strip_avx2(const Strip *s, int64_t count, int64_t vectors) {
    any_strip_body(s, count, vectors);
}
#endif

void any_strip(const Strip *s, int64_t count, int64_t vectors) {
#if defined(__x86_64__)
    const int form = chosen_form();
    if (form == AVX512_FORM) return strip_avx512(s, count, vectors);
    if (form == AVX2_FORM) return strip_avx2(s, count, vectors);
#endif
    any_strip_body(s, count, vectors);
}
