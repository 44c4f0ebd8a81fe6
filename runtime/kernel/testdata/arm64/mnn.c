// Runs one kernel of MNN's arm64 sources once on zeros, for count.py: KERNEL TOKENS BLOCK, with 64 rows and 512 columns of weights.
// The declarations are those of Int8FunctionsOpt.h and CommonOptFunction.h, release 3.6.1.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

struct post {
    const float *scale, *bias;
    int32_t max, min, int8;
    float positive, negative;
    float *input_sums, *weight_sums, *limits;
    ssize_t blocks;
    const int32_t *unused;
    const float *input_scale, *input_bias;
    float *accumulators;
    int32_t *indices;
};
typedef void int8_kernel(int8_t *, const int8_t *, const int8_t *, size_t, size_t, size_t, const struct post *, size_t);
int8_kernel MNNGemmInt8AddBiasScale_ARMV86_Unit, MNNGemmInt8AddBiasScale_ARMV86_w4_Unit, MNNGemmInt8AddBiasScale_ARMV82_Unit,
    MNNGemmInt8AddBiasScale_ARMV82_w4_Unit, MNNGemmInt8AddBiasScale_16x4_Unit, MNNGemmInt8AddBiasScale_16x4_w4_Unit;
void MNNPackedMatMul(float *, const float *, const float *, const size_t *, const float *, const float *, const float *, const float *);
void MNNPackedMatMulRemain(float *, const float *, const float *, size_t, const size_t *, const float *, const float *, const float *, const float *);

static struct {
    const char *name;
    int8_kernel *run;
    size_t tokens, cols;  // of a call and of a step
} kernels[] = {
    {"i8mm-w8", MNNGemmInt8AddBiasScale_ARMV86_Unit, 10, 8}, {"i8mm-w4", MNNGemmInt8AddBiasScale_ARMV86_w4_Unit, 10, 8},
    {"sdot-w8", MNNGemmInt8AddBiasScale_ARMV82_Unit, 12, 4}, {"sdot-w4", MNNGemmInt8AddBiasScale_ARMV82_w4_Unit, 12, 4},
    {"neon-w8", MNNGemmInt8AddBiasScale_16x4_Unit, 4, 16},   {"neon-w4", MNNGemmInt8AddBiasScale_16x4_w4_Unit, 4, 16},
};

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t tokens = atoi(argv[2]), block = atoi(argv[3]);
    char *memory = calloc(1, 8 << 20);
#define PART(n) (void *)(memory + (n << 20))
    if (!strcmp(argv[1], "float")) {
        size_t shape[7] = {12 * 4, 512, 64, tokens * 16, 0, 0, 0};
        for (; tokens >= 12; tokens -= 12) MNNPackedMatMul(PART(0), PART(1), PART(2), shape, 0, 0, 0, 0);
        if (tokens) MNNPackedMatMulRemain(PART(0), PART(1), PART(2), tokens, shape, 0, 0, 0, 0);
        return 0;
    }
    struct post p = {.bias = PART(3), .input_sums = PART(4), .weight_sums = PART(5), .limits = PART(5), .blocks = 512 / block, .input_scale = PART(6), .accumulators = PART(7)};
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        if (strcmp(argv[1], kernels[k].name)) continue;
        for (size_t left = tokens; left > 0;) {
            size_t n = left < kernels[k].tokens ? left : kernels[k].tokens;
            kernels[k].run(PART(0), PART(1), PART(2), block / kernels[k].cols, tokens * 16, 64 / 4, &p, n);
            left -= n;
        }
        return 0;
    }
    return 2;
}
