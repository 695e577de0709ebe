/* Messages along bonds: each row hears the sum over its bonds of ReLU(row at the other end + bond).
 * Nothing of the size of the messages is kept for backward, which makes them again.
 *
 * With states, what is added is no number of the kind of bond but the bond's own state, to which each
 * layer adds ReLU(what it makes of either end + that of the kind). States are kept. */

#include "vector.h"

typedef struct {
    const int64_t *source, *target, *kind; /* of each bond */
    int64_t bonds;
    int64_t rows, width;
    const float *values;           /* [rows, width] */
    const float *bond_values;      /* [kinds, width] */
    float *sums;                   /* [rows, width], zero before */
    const float *sums_gradient;    /* [rows, width] */
    float *values_gradient;        /* [rows, width], zero before */
    float *bond_values_gradient;   /* [kinds, width], zero before */
    const float *ends;             /* [rows, width]; with states, as what follows */
    const float *before;           /* [bonds, width], or null: zeros */
    float *states;                 /* [bonds, width], zero before forward */
    const float *states_gradient;  /* [bonds, width], or null: zeros */
    float *ends_gradient;          /* [rows, width], zero before */
    float *before_gradient;        /* [bonds, width], zero before */
} Messages;

/* Channels `first` to `last - 1` of all bonds, in their order: threads share no channel. */
INLINE int messages_forward_body(const Messages *a, int64_t first, int64_t last) {
    for (int64_t e = 0; e < a->bonds; e++) {
        if (a->target[e] == a->rows) continue; /* only fills up */
        const float *restrict value = a->values + a->source[e] * a->width;
        const float *restrict bond = a->bond_values + a->kind[e] * a->width;
        float *restrict sum = a->sums + a->target[e] * a->width;
        for (int64_t c = first; c < last; c++) {
            const float message = value[c] + bond[c];
            sum[c] += message < 0 ? 0 : message; /* NaN stays NaN */
        }
    }
    return 0;
}

INLINE int messages_backward_body(const Messages *a, int64_t first, int64_t last) {
    for (int64_t e = 0; e < a->bonds; e++) {
        if (a->target[e] == a->rows) continue;
        const float *restrict value = a->values + a->source[e] * a->width;
        const float *restrict bond = a->bond_values + a->kind[e] * a->width;
        const float *restrict gradient = a->sums_gradient + a->target[e] * a->width;
        float *restrict of_value = a->values_gradient + a->source[e] * a->width;
        float *restrict of_bond = a->bond_values_gradient + a->kind[e] * a->width;
        for (int64_t c = first; c < last; c++) {
            const float passed = value[c] + bond[c] > 0 ? gradient[c] : 0;
            of_value[c] += passed;
            of_bond[c] += passed;
        }
    }
    return 0;
}

/* The first `count` of eight numbers, the others zero. */
INLINE floats take(const float *from, int count) {
    if (count == LANES) return load(from);
    floats values = {0};
    __builtin_memcpy(&values, from, sizeof(float) * count);
    return values;
}

INLINE void add(float *to, floats values, int count) {
    store_first(to, take(to, count) + values, count);
}

INLINE floats positive(floats x) { return choose(x < 0, (floats){0}, x); } /* NaN stays NaN */

/* `count` channels of bond `e`, from channel `c`. */
INLINE void send_by_state(const Messages *a, int64_t e, int64_t c, int count) {
    const int64_t own = e * a->width + c;
    const int64_t source = a->source[e] * a->width + c, target = a->target[e] * a->width + c;
    floats state = positive(take(a->ends + source, count) + take(a->ends + target, count) +
                            take(a->bond_values + a->kind[e] * a->width + c, count));
    if (a->before) state += take(a->before + own, count);
    store_first(a->states + own, state, count);
    add(a->sums + target, positive(take(a->values + source, count) + state), count);
}

INLINE int state_messages_forward_body(const Messages *a, int64_t first, int64_t last) {
    for (int64_t e = 0; e < a->bonds; e++) {
        if (a->target[e] == a->rows) continue;
        int64_t c = first;
        for (; c + LANES <= last; c += LANES) send_by_state(a, e, c, LANES);
        if (c < last) send_by_state(a, e, c, last - c);
    }
    return 0;
}

/* Gradients of `send_by_state`; both ends get that of the state's growth, and may be one row. */
INLINE void return_by_state(const Messages *a, int64_t e, int64_t c, int count) {
    const int64_t own = e * a->width + c, kind = a->kind[e] * a->width + c;
    const int64_t source = a->source[e] * a->width + c, target = a->target[e] * a->width + c;
    const floats growth = take(a->ends + source, count) + take(a->ends + target, count) +
                          take(a->bond_values + kind, count);
    const floats message = take(a->values + source, count) + take(a->states + own, count);
    const floats passed = choose(message > 0, take(a->sums_gradient + target, count), (floats){0});
    floats of_state = passed;
    if (a->states_gradient) of_state += take(a->states_gradient + own, count);
    const floats of_growth = choose(growth > 0, of_state, (floats){0});
    add(a->values_gradient + source, passed, count);
    store_first(a->before_gradient + own, of_state, count);
    add(a->ends_gradient + source, of_growth, count);
    add(a->ends_gradient + target, of_growth, count);
    add(a->bond_values_gradient + kind, of_growth, count);
}

INLINE int state_messages_backward_body(const Messages *a, int64_t first, int64_t last) {
    for (int64_t e = 0; e < a->bonds; e++) {
        if (a->target[e] == a->rows) continue;
        int64_t c = first;
        for (; c + LANES <= last; c += LANES) return_by_state(a, e, c, LANES);
        if (c < last) return_by_state(a, e, c, last - c);
    }
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(messages_forward, (const Messages *a, int64_t first, int64_t last),
                          (a, first, last))
EXPORT_FOR_EACH_PROCESSOR(messages_backward, (const Messages *a, int64_t first, int64_t last),
                          (a, first, last))
EXPORT_FOR_EACH_PROCESSOR(state_messages_forward, (const Messages *a, int64_t first, int64_t last),
                          (a, first, last))
EXPORT_FOR_EACH_PROCESSOR(state_messages_backward, (const Messages *a, int64_t first, int64_t last),
                          (a, first, last))
