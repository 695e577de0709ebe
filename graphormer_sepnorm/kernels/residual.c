/* Messages and an update that is scaled by degree, in one pass:
 *
 *     output = messages + update (plain + log_degree by_degree)
 */

#include <stdlib.h>
#include <string.h>

#include "vector.h"

typedef struct {
    const float *messages, *update; /* [rows][width] */
    const float *log_degree;                   /* [rows] */
    const float *plain, *by_degree;            /* [width] */
    float *output;                             /* [rows][width] */
    const float *gradient;                     /* [rows][width] */
    float *update_gradient;                    /* [rows][width] */
    float *plain_gradient, *by_degree_gradient; /* [width] */
    int64_t rows, width;
} Residual;

/* Rows that are added up before they join the sum over all, which then rounds less. */
#define SUMMED 64

/* Rows `first` to `last - 1`. */
INLINE int residual_forward_body(const Residual *a, int64_t first, int64_t last) {
    const int64_t width = a->width;
    const float *restrict plain = a->plain, *restrict by_degree = a->by_degree;
    for (int64_t r = first; r < last; r++) {
        const float degree = a->log_degree[r];
        const float *restrict messages = a->messages + r * width;
        const float *restrict update = a->update + r * width;
        float *restrict output = a->output + r * width;
        for (int64_t c = 0; c < width; c++)
            output[c] = messages[c] + update[c] * (plain[c] + degree * by_degree[c]);
    }
    return 0;
}

/* Channels `first` to `last - 1` of all rows, in their order: threads share no channel. */
INLINE int residual_backward_body(const Residual *a, int64_t first, int64_t last) {
    const int64_t width = a->width, own = last - first;
    const float *restrict plain = a->plain + first, *restrict by_degree = a->by_degree + first;
    float *restrict of_plain = a->plain_gradient + first;
    float *restrict of_degree = a->by_degree_gradient + first;
    float *restrict sums = malloc(sizeof(float) * 2 * own);
    if (!sums) return 1;
    memset(of_plain, 0, sizeof(float) * own);
    memset(of_degree, 0, sizeof(float) * own);
    for (int64_t r = 0; r < a->rows; r += SUMMED) {
        const int64_t end = r + SUMMED < a->rows ? r + SUMMED : a->rows;
        memset(sums, 0, sizeof(float) * 2 * own);
        for (int64_t i = r; i < end; i++) {
            const float degree = a->log_degree[i];
            const float *restrict gradient = a->gradient + i * width + first;
            const float *restrict update = a->update + i * width + first;
            float *restrict of_update = a->update_gradient + i * width + first;
            for (int64_t c = 0; c < own; c++) {
                const float slope = gradient[c] * update[c];
                of_update[c] = gradient[c] * (plain[c] + degree * by_degree[c]);
                sums[c] += slope;
                sums[own + c] += slope * degree;
            }
        }
        for (int64_t c = 0; c < own; c++) {
            of_plain[c] += sums[c];
            of_degree[c] += sums[own + c];
        }
    }
    free(sums);
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(residual_forward, (const Residual *a, int64_t first, int64_t last),
                          (a, first, last))
EXPORT_FOR_EACH_PROCESSOR(residual_backward, (const Residual *a, int64_t first, int64_t last),
                          (a, first, last))
