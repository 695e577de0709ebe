/* Linear layers: products of many rows with a matrix small enough to stay in the cache.
 *
 *     rows      output[r] = bias + sum_k input[r][k] matrix[k]      forward; backward of the input
 *               then GELU and the residual, where they are wanted
 *     weights   output[n] = sum_r gradient[r][n] input[r]           backward of weight and bias
 *
 * An output does not depend on how many rows there are, nor on the number of threads. */

#include <stdlib.h>

#include "tiles.h"

typedef struct {
    const float *input;      /* [rows][depth] */
    const float *matrix;     /* element (k, c) at k * matrix_row + c * matrix_column */
    const float *bias;       /* [columns], or NULL */
    const float *gradient;   /* weights: [rows][outputs] */
    float *packed;           /* [panels][depth][of a panel]; NULL: `linear_rows` packs for itself */
    float *output;           /* rows: [rows][columns]; weights: [outputs][columns] */
    float *bias_gradient;    /* weights: [outputs], or NULL */
    int64_t rows, depth, columns, outputs;
    int64_t matrix_row, matrix_column;
    const float *residual;   /* rows: [rows][columns], or NULL */
    int64_t activated;       /* rows: by GELU */
} Linear;

/* Rows that share a pass over all panels, and rows that are added up before they join the sum over
 * all: with a panel they fit into the first cache. */
#define BLOCK 70
#define SUMMED 96

INLINE void pack(const Linear *a, float *packed) {
    const int64_t vectors = vectors_of(a->columns);
    int64_t start;
    for (int64_t panel = 0; panel < panels_of(vectors); panel++) {
        const int64_t count = panel_vectors(vectors, panel, &start);
        pack_panel(packed + start * WIDE * a->depth, a->matrix, a->matrix_row, a->matrix_column,
                   a->depth, start * WIDE, a->columns, count);
    }
}

EXPORT int linear_rows(const Linear *a, int64_t first, int64_t last) {
    const int64_t vectors = vectors_of(a->columns), width = vectors * WIDE;
    const int ready = is_packed(a->matrix_column, a->columns), own = !ready && !a->packed;
    float *scratch = malloc(sizeof(float) * width * (1 + (own ? a->depth : 0)));
    if (!scratch) return 1;
    float *bias = NULL;
    const float *packed = a->packed;
    if (a->bias) {
        bias = scratch;
        memcpy(bias, a->bias, 4 * a->columns);
        memset(bias + a->columns, 0, 4 * (width - a->columns));
    }
    if (own) {
        pack(a, scratch + width);
        packed = scratch + width;
    }
    for (int64_t r = first; r < last; r += BLOCK) {
        const int64_t count = last - r < BLOCK ? last - r : BLOCK;
        int64_t start;
        for (int64_t panel = 0; panel < panels_of(vectors); panel++) {
            const int64_t n = panel_vectors(vectors, panel, &start);
            const int64_t first_column = start * WIDE, rest = a->columns - first_column;
            const Strip s = {a->input + r * a->depth, a->depth, 1,
                             ready ? a->matrix + first_column : packed + first_column * a->depth,
                             ready ? a->matrix_row : panel_width(rest, n), a->depth,
                             bias ? bias + first_column : NULL,
                             a->output + r * a->columns + first_column, a->columns, rest, 0};
            any_strip(&s, count, n);
        }
        if (a->residual || a->activated)
            finish(a->output + r * a->columns, a->residual ? a->residual + r * a->columns : NULL,
                   count * a->columns, a->activated);
    }
    free(scratch);
    return 0;
}

/* Outputs `first` to `last - 1` of the gradients of weight and bias. */
EXPORT int linear_weights(const Linear *a, int64_t first, int64_t last) {
    const int64_t vectors = vectors_of(a->columns), width = vectors * WIDE, own = last - first;
    const int ready = is_packed(1, a->columns);
    float *packed = malloc(sizeof(float) * SUMMED * width);
    float *sums = calloc(own * width, sizeof(float));
    if (!packed || !sums) {
        free(packed);
        free(sums);
        return 1;
    }
    if (a->bias_gradient) memset(a->bias_gradient + first, 0, 4 * own);
    for (int64_t r = 0; r < a->rows; r += SUMMED) {
        const int64_t count = a->rows - r < SUMMED ? a->rows - r : SUMMED;
        const float *gradient = a->gradient + r * a->outputs + first;
        int64_t start;
        for (int64_t panel = 0; panel < panels_of(vectors); panel++) {
            const int64_t n = panel_vectors(vectors, panel, &start);
            const int64_t first_column = start * WIDE, rest = a->columns - first_column;
            const float *input = a->input + r * a->columns;
            if (!ready) pack_panel(packed, input, a->columns, 1, count, first_column, a->columns, n);
            const Strip s = {gradient, 1, a->outputs, ready ? input + first_column : packed,
                             ready ? a->columns : panel_width(rest, n), count, NULL,
                             sums + first_column, width, rest, 1};
            any_strip(&s, own, n);
        }
        if (a->bias_gradient)
            for (int64_t n = 0; n < own; n += WIDE) {
                wides sum = {0};
                if (n + WIDE <= own) {
                    for (int64_t i = 0; i < count; i++)
                        sum += *(const wides *)(gradient + i * a->outputs + n);
                } else {
                    for (int64_t i = 0; i < count; i++)
                        for (int64_t c = n; c < own; c++) sum[c - n] += gradient[i * a->outputs + c];
                }
                for (int64_t c = n; c < own && c < n + WIDE; c++)
                    a->bias_gradient[first + c] += sum[c - n];
            }
    }
    for (int64_t n = 0; n < own; n++)
        memcpy(a->output + (first + n) * a->columns, sums + n * width, 4 * a->columns);
    free(packed);
    free(sums);
    return 0;
}

/* Pack the matrix once for all threads; itself not divided between them. */
EXPORT int linear_pack(const Linear *a, int64_t first, int64_t last) {
    if (!is_packed(a->matrix_column, a->columns)) pack(a, a->packed);
    (void)first, (void)last;
    return 0;
}

/* Whether these functions, and that of newton_schulz.c, are faster here than torch's. With AVX2 alone
 * MKL's products are as fast, so that what counts is GELU and the residual in the last loop, which
 * gradients do without; on processors of MKL's maker they are faster. */
EXPORT int products_are_fast(int gradients) {
#if defined(__x86_64__)
    const int form = chosen_form();
    return form == AVX512_FORM || (form == AVX2_FORM && !gradients && !__builtin_cpu_is("intel"));
#else
    return 0;
#endif
}
