/* Attention for processors with AVX-512, sixteen queries at a time. */

#if defined(__x86_64__)
#define LANES 16
#include "attention.c"
#endif
