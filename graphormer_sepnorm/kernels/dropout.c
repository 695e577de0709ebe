/* Dropout of one vector, added to another: the residual connection of a layer in one pass. */

#include "vector.h"

typedef struct {
    Dropout dropout;
    const float *residual; /* may be NULL: then there is nothing to add to */
    const float *update;
    float *output;
} DropoutAdd;

/* output = residual + dropout(update), for elements `first` to `last - 1`; `first` is a multiple of
 * LANES. */
INLINE int dropout_add_body(const DropoutAdd *a, int64_t first, int64_t last) {
    int64_t i = first;
    for (; i + LANES <= last; i += LANES) {
        floats sum = dropped(load(a->update + i), &a->dropout, (uint32_t)i);
        if (a->residual) sum += load(a->residual + i);
        store(a->output + i, sum);
    }
    floats rest = all_equal(0);
    for (int64_t lane = 0; i + lane < last; lane++) rest[lane] = a->update[i + lane];
    rest = dropped(rest, &a->dropout, (uint32_t)i);
    for (int64_t lane = 0; i + lane < last; lane++)
        a->output[i + lane] = rest[lane] + (a->residual ? a->residual[i + lane] : 0);
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(dropout_add, (const DropoutAdd *a, int64_t first, int64_t last),
                          (a, first, last))
