/* What follows a linear layer, on rows that are still in the cache. */

#include "tiles.h"

/* GELU x Phi(x) (Hendrycks & Gimpel 2016). Phi(x) - 1/2 is x times a quotient of polynomials in x^2,
 * fitted so that no value up to 5.5 is off by more than 2e-8; beyond, Phi is taken for 0 or 1. */
INLINE floats gelu(floats x) {
    const floats near = larger(-larger(-x, all_equal(-5.5f)), all_equal(-5.5f)), u = near * near;
    floats above = 6.53074858e-6f + u * 2.2215962e-8f, below = 7.86103982e-5f + u * 1.19539954e-6f;
    above = 1.82858455e-4f + u * above, below = 1.962436e-3f + u * below;
    above = 4.76161828e-3f + u * above, below = 2.93987081e-2f + u * below;
    above = 3.51423499e-2f + u * above, below = 0.254752394f + u * below;
    above = 0.398941985f + u * above, below = 1 + u * below;
    return x * choose(x < all_equal(-5.5f), all_equal(0), 0.5f + near * above / below);
}

INLINE int finish_body(float *rows, const float *residual, int64_t count, int activated) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        floats value = load(rows + i);
        if (activated) value = gelu(value);
        if (residual) value += load(residual + i);
        store(rows + i, value);
    }
    if (i == count) return 0;
    float last[LANES] = {0};
    memcpy(last, rows + i, sizeof(float) * (count - i));
    if (activated) store(last, gelu(load(last)));
    for (int64_t c = 0; i + c < count; c++) rows[i + c] = last[c] + (residual ? residual[i + c] : 0);
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(finish, (float *rows, const float *residual, int64_t count, int activated),
                          (rows, residual, count, activated))
