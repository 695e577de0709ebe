/* Dropout of one vector, added to another: the residual connection of a layer in one pass. */

#include "vector.h"

/* output = residual + dropout(update); without `residual` only the second. Elements `first` to
 * `last - 1`, `first` a multiple of LANES. */
INLINE int dropout_add_body(const Dropout *dropout, const float *residual, const float *update,
                            float *output, int64_t first, int64_t last) {
    int64_t i = first;
    for (; i + LANES <= last; i += LANES) {
        floats sum = dropped(load(update + i), dropout, (uint32_t)i);
        if (residual) sum += load(residual + i);
        store(output + i, sum);
    }
    floats rest = all_equal(0);
    for (int64_t lane = 0; i + lane < last; lane++) rest[lane] = update[i + lane];
    rest = dropped(rest, dropout, (uint32_t)i);
    for (int64_t lane = 0; i + lane < last; lane++)
        output[i + lane] = rest[lane] + (residual ? residual[i + lane] : 0);
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(dropout_add,
                          (const Dropout *dropout, const float *residual, const float *update,
                           float *output, int64_t first, int64_t last),
                          (dropout, residual, update, output, first, last))
