/* Calls libloka as training code does, against stand-ins for the driver and NVRTC that print what is launched. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loka.h"

static void told(const char *what, int32_t code) {
    printf("%s: %d%s%s\n", what, code, code ? " " : "", code ? loka_last_error() : "");
    fflush(stdout);
}

static void *at(uintptr_t address) { return (void *)address; }

static void *elsewhere(void *unused) {
    (void)unused;
    told("another thread's words", loka_last_error()[0] != 0);
    loka_operand one = {at(0x1000), at(0x2000), at(0x3000), 0, 0, 0, 0, 64, 256, 0, 0, 0, 0};
    told("rowwise in another thread", loka_cast_rowwise(0, &one, 1, at(0x70)));
    return NULL;
}

int main(void) {
    if (loka_version() != LOKA_ABI_VERSION) return 1;
    told("no error yet", loka_last_error()[0] != 0);
    loka_operand pair[2] = {
        {at(0x1000), at(0x2000), at(0x3000), at(0x4000), at(0x5000), at(0x6000), 1 << 20, 2048, 512, 0, 0, 0, 0},
        {at(0x11000), at(0x12000), at(0x13000), at(0x14000), at(0x15000), at(0x16000), 1 << 20, 1024, 512, 2, 512, 1152, 0},
    };
    told("before opening", loka_cast_rowwise(0, pair, 1, NULL));
    told("no such device", loka_open(7, NULL));
    told("a negative device", loka_open(-1, NULL));
    told("open", loka_open(0, "/nowhere:/nowhere/else"));
    told("open again", loka_open(0, NULL));
    uint64_t bytes = 0;
    told("partials", loka_partials_bytes(0, 2048, 512, &bytes));
    printf("partials bytes %llu\n", (unsigned long long)bytes);
    told("rowwise", loka_cast_rowwise(0, pair, 1, at(0x77)));
    told("rowwise of two", loka_cast_rowwise(0, pair, 2, at(0x77)));
    told("columnwise", loka_cast_columnwise(0, pair, 2, at(0x77)));
    told("tensorwise", loka_cast_tensorwise(0, pair, 2, at(0x77)));
    told("transpose", loka_transpose_codes(0, pair, 2, at(0x77)));
    told("three operands", loka_cast_rowwise(0, pair, 3, NULL));
    told("no operands", loka_cast_rowwise(0, NULL, 1, NULL));
    pair[0].partials_bytes = 16;
    told("small partials", loka_cast_columnwise(0, pair, 1, NULL));
    pair[0].flags = 64;
    told("a flag that is none", loka_cast_rowwise(0, pair, 1, NULL));
    told("static cast", loka_cast_static(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), 1 << 20, at(0x77)));
    told("gemm", loka_fp8_gemm(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), at(0x5000), 300, 512, 1024, 0, 0,
                               LOKA_FAST | LOKA_W_ROW_SCALES, -1, at(0x77)));
    told("gemm, promoted, E5M2", loka_fp8_gemm(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), at(0x5000), 300, 512,
                                               1024, 0, 0, LOKA_X_E5M2, 0, at(0x77)));
    told("blocks that share k", loka_fp8_gemm(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), at(0x5000), 300, 512,
                                              1024, 0, 0, LOKA_FAST, 2, at(0x77)));
    told("another tiling", loka_fp8_gemm(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), at(0x5000), 300, 512, 1024, 0, 0,
                                         LOKA_FAST, 3, at(0x77)));
    told("no such tiling", loka_fp8_gemm(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), at(0x5000), 300, 512, 1024, 0, 0,
                                         LOKA_FAST, 20, at(0x77)));
    told("ragged k", loka_fp8_gemm(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), at(0x5000), 300, 512, 1000, 0, 0,
                                   LOKA_FAST, -1, at(0x77)));
    told("unaligned", loka_fp8_gemm(0, at(0x1008), at(0x3000), at(0x2000), at(0x4000), at(0x5000), 300, 512, 1024, 0, 0,
                                    LOKA_FAST, -1, at(0x77)));
    told("rows apart", loka_fp8_gemm(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), at(0x5000), 300, 512, 1040, 1152,
                                     1280, LOKA_FAST, -1, at(0x77)));
    told("rows upon one another", loka_fp8_gemm(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), at(0x5000), 300, 512,
                                                1040, 1024, 0, LOKA_FAST, -1, at(0x77)));
    told("null", loka_fp8_gemm(0, at(0x1000), at(0), at(0x2000), at(0x4000), at(0x5000), 300, 512, 1024, 0, 0, LOKA_FAST, -1,
                               at(0x77)));
    told("static", loka_fp8_static_gemm(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), at(0xb0), at(0x5000),
                                        at(0x6000), 300, 512, 1024, 0, 0, LOKA_W_ROW_SCALES, -1, at(0x77)));
    told("block to h", loka_fp8_block(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), NULL, NULL, at(0x5000), NULL,
                                      NULL, at(0x6000), 300, 512, 1024, 0, 0, LOKA_W_ROW_SCALES, at(0x77)));
    told("block of codes", loka_fp8_block(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), at(0xb0), NULL, NULL,
                                          at(0x5000), at(0x7000), at(0x6000), 300, 512, 1024, 0, 0, LOKA_X_E4M3, at(0x77)));
    told("block to z and h", loka_fp8_block(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), NULL, at(0x8000),
                                            at(0x5000), NULL, NULL, at(0x6000), 300, 512, 1024, 0, 0, 0, at(0x77)));
    told("block to nothing", loka_fp8_block(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), NULL, NULL, NULL, NULL,
                                            NULL, at(0x6000), 300, 512, 1024, 0, 0, 0, at(0x77)));
    told("codes without a scale", loka_fp8_block(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), NULL, NULL, NULL,
                                                 at(0x5000), NULL, at(0x6000), 300, 512, 1024, 0, 0, 0, at(0x77)));
    told("ragged block", loka_fp8_block(0, at(0x1000), at(0x3000), at(0x2000), at(0x4000), NULL, NULL, at(0x5000), NULL,
                                        NULL, at(0x6000), 300, 400, 1024, 0, 0, 0, at(0x77)));
    told("tail", loka_block_norm_hard_swish(0, at(0x1000), at(0x2000), NULL, NULL, 300, 512, at(0x77)));
    told("ragged tail", loka_block_norm_hard_swish(0, at(0x1000), at(0x2000), NULL, NULL, 300, 300, at(0x77)));
    told("backward", loka_block_backward(0, at(0x1000), at(0x2000), at(0x3000), at(0x4000), at(0x5000), 300, 512,
                                         at(0x77)));
    told("no place for scales", loka_block_backward(0, at(0x1000), at(0x2000), NULL, at(0x4000), NULL, 300, 512,
                                                    at(0x77)));
    told("backward by a known scale", loka_block_backward_static(0, at(0x1000), at(0x2000), NULL, at(0x4000), NULL,
                                                                 at(0x5000), at(0x6000), at(0x8000), 300, 512,
                                                                 at(0x77)));
    told("transposed as well", loka_block_backward_static(0, at(0x1000), at(0x2000), NULL, at(0x4000), at(0x7000),
                                                          at(0x5000), NULL, NULL, 304, 512, at(0x77)));
    told("rows that cannot be transposed", loka_block_backward_static(0, at(0x1000), at(0x2000), NULL, at(0x4000),
                                                                      at(0x7000), at(0x5000), NULL, NULL, 300, 512,
                                                                      at(0x77)));
    const loka_static_operand known[2] = {
        {at(0x1000), at(0x2000), at(0x3000), at(0x4000), at(0x5000), at(0x6000), 48, 520},
        {at(0x1000), at(0x2000), at(0x3000), NULL, NULL, NULL, 33, 8},
    };
    told("casts by known scales", loka_cast_static_turned(0, known, 2, at(0x77)));
    told("no operands", loka_cast_static_turned(0, known, 0, at(0x77)));
    pthread_t thread;
    if (pthread_create(&thread, NULL, elsewhere, NULL) != 0) return 1;
    pthread_join(thread, NULL);
    /* The driver is there by now: libloka loaded it. */
    int (*get_current)(void **);
    *(void **)&get_current = dlsym(RTLD_DEFAULT, "cuCtxGetCurrent");
    void *context = NULL;
    if (get_current == NULL || get_current(&context) != 0) return 1;
    told("the thread's context is another", context != at(0xCA));
    return 0;
}
