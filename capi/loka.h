/* libloka: LoKA's FP8 kernels on device memory and streams of yours.
 *
 * Every call launches on `stream` (a CUstream or cudaStream_t; null: the default one) and returns at once. The first
 * use of a kernel compiles it with NVRTC, or reads it from the cache ($XDG_CACHE_HOME/loka, ~/.cache/loka): make one
 * call of each kind before a CUDA graph is captured. After that a call allocates no device memory, waits for nothing
 * and may be captured. The context is the device's primary one; the thread's current context stays what it was. Calls
 * may come from any thread.
 *
 * Pointers are device memory unless said otherwise, matrices row-major, without gaps where no pitch is asked for. A pitch
 * is how many elements are from one row to the next; 0: rows lie behind one another. Codes whose rows begin at multiples
 * of 128 bytes are multiplied fastest. Scales multiply: a code stands for code * scale. Memory must be of the device whose number is given, and stay until the stream is past the call.
 *
 * Each call but the first two returns LOKA_OK or what went wrong; loka_last_error() has the words. */
#ifndef LOKA_H
#define LOKA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a function below changes. */
#define LOKA_ABI_VERSION 3

enum {
    LOKA_OK = 0,
    LOKA_REFUSED = 1, /* an argument that the call does not take, or a GPU that the kernel is not for */
    LOKA_MISSING = 2, /* no driver, GPU or NVRTC that serves */
    LOKA_FAILED = 3,  /* the driver or the compiler said no */
    LOKA_LOST = 4,    /* the context is broken: nothing more runs on this device in this process */
    LOKA_BUG = 5      /* of LoKA's */
};

/* Of loka_operand. */
enum {
    LOKA_POWER_OF_TWO = 1, /* scales are rounded up to a power of two */
    LOKA_AS_E5M2 = 2       /* codes are E5M2, else E4M3 */
};

/* Of products. */
enum {
    LOKA_FAST = 1,         /* the tensor cores' accumulator alone, else promoted to FP32 every 128 of k */
    LOKA_X_E5M2 = 2,       /* codes of x are E5M2, else E4M3 */
    LOKA_X_ROW_SCALES = 4, /* x has a scale a row, else one */
    LOKA_W_ROW_SCALES = 8, /* w has a scale a row, else one */
    LOKA_X_E4M3 = 16       /* of a block: x is E4M3 already, else BF16 */
};

/* One operand of a cast; null for what a call does not use. */
typedef struct loka_operand {
    const void *x;           /* BF16 [rows, cols]; 16-byte aligned for full speed, as are the codes */
    void *codes;             /* [rows, cols] */
    float *scales;           /* [rows]; of a tensorwise cast [1] */
    void *codes_t;           /* [cols, rows] */
    float *scales_t;         /* [cols] */
    void *partials;          /* scratch, aligned to 16 bytes, this operand's alone until the cast is done */
    uint64_t partials_bytes; /* loka_partials_bytes() at least */
    uint32_t rows;
    uint32_t cols;
    uint32_t flags;
    uint32_t pitch;          /* of codes */
    uint32_t pitch_t;        /* of codes_t */
    uint32_t reserved;
} loka_operand;

/* The ABI that this library has: compare it with LOKA_ABI_VERSION before anything else. */
uint32_t loka_version(void);

/* What this thread's last call that failed says, one line; empty where none did. Host memory, the thread's own, valid
 * until its next call that fails. */
const char *loka_last_error(void);

/* Opens the GPU of that number; a second time does nothing. `folders`, host memory: where to look for libnvrtc and
 * libcuda before CUDA_HOME and the packages of the Python on PATH, separated by ':'; or null. */
int32_t loka_open(int32_t device, const char *folders);

/* Scratch that a columnwise or a tensorwise cast of one operand needs, to *bytes, host memory. */
int32_t loka_partials_bytes(int32_t device, uint32_t rows, uint32_t cols, uint64_t *bytes);

/* scale = max(amax / largest, 1e-12), code = the saturating nearest-even cast of x / scale. One or two operands.
 *   rowwise      x, codes, scales [rows]
 *   columnwise   x, codes_t, scales_t [cols], partials
 *   tensorwise   x, codes or codes_t or both, scales [1], partials */
int32_t loka_cast_rowwise(int32_t device, const loka_operand *operands, uint32_t count, void *stream);
int32_t loka_cast_columnwise(int32_t device, const loka_operand *operands, uint32_t count, void *stream);
int32_t loka_cast_tensorwise(int32_t device, const loka_operand *operands, uint32_t count, void *stream);

/* codes to codes_t, one or two operands: a static scale is a column's too. */
int32_t loka_transpose_codes(int32_t device, const loka_operand *operands, uint32_t count, void *stream);

/* count elements of BF16 to E4M3 by *scale, known beforehand; adds how many saturated to *saturated. */
int32_t loka_cast_static(int32_t device, const void *x, const float *scale, void *codes, uint64_t *saturated,
                         uint64_t count, void *stream);

/* One to four matrices of BF16 to E4M3, each by a scale of its own known beforehand, a power of two, to codes and to
 * codes_t, in one pass. Outputs that are null are not wanted. Adds how many elements saturated to *saturated and raises
 * *amax to the largest magnitude. x is aligned to 16 bytes, codes to 8, codes_t to 16; cols is a multiple of 8, with
 * codes_t rows one of 16. */
typedef struct {
    const void *x;      /* BF16 [rows, cols] */
    const float *scale;
    void *codes;        /* [rows, cols] */
    void *codes_t;      /* [cols, rows] */
    uint64_t *saturated;
    float *amax;
    uint32_t rows;
    uint32_t cols;
} loka_static_operand;

int32_t loka_cast_static_turned(int32_t device, const loka_static_operand *operands, uint32_t count, void *stream);

/* The products need compute capability 9.0, n and k multiples of 16, and x, w, their pitches in bytes and the output aligned
 * to 16 bytes.
 * `tiling`: which kernel, from 0 in the order of their expected time; negative: the first. */

/* y BF16 [m, n] = x [m, k] w [n, k]^T, both operands codes; w E4M3. */
int32_t loka_fp8_gemm(int32_t device, const void *x, const float *x_scales, const void *w, const float *w_scales,
                      void *y, uint32_t m, uint32_t n, uint32_t k, uint32_t x_pitch, uint32_t w_pitch, uint32_t flags,
                      int32_t tiling, void *stream);

/* y = x w^T + bias with x in BF16, cast on its way in to E4M3 by *x_scale, which must be a power of two; fast
 * accumulation. bias: BF16 [n], aligned to 4 bytes, or null. Adds how many elements of x saturated to *saturated. */
int32_t loka_fp8_static_gemm(int32_t device, const void *x, const float *x_scale, const void *w, const float *w_scales,
                             const void *bias, void *y, uint64_t *saturated, uint32_t m, uint32_t n, uint32_t k,
                             uint32_t x_pitch, uint32_t w_pitch, uint32_t flags, int32_t tiling, void *stream);

/* z = x w^T + bias, h = hard swish(BlockNorm(z)), blocks of 256 columns, n a multiple of 256. x is BF16, cast as above,
 * or E4M3. Stores those of z BF16, h BF16 and codes of h E4M3, each [m, n], that are not null; codes by *h_scale, a
 * power of two. |BlockNorm| is at most 16, so that 2^-4 saturates nothing. */
int32_t loka_fp8_block(int32_t device, const void *x, const float *x_scale, const void *w, const float *w_scales,
                       const void *bias, void *z, void *h, void *codes, const float *h_scale, uint64_t *saturated,
                       uint32_t m, uint32_t n, uint32_t k, uint32_t x_pitch, uint32_t w_pitch, uint32_t flags,
                       void *stream);

/* The tail alone, of z BF16 [m, n]: h BF16 and codes as above, those that are not null. */
int32_t loka_block_norm_hard_swish(int32_t device, const void *z, void *h, void *codes, const float *h_scale,
                                   uint32_t m, uint32_t n, void *stream);

/* The gradient of z from dh BF16 [m, n] and z: dz BF16 and its codes in E4M3, those that are not null. Codes have a
 * scale a row, to row_scales [m], as loka_cast_rowwise would give. n is at most 16,384. */
int32_t loka_block_backward(int32_t device, const void *dh, const void *z, void *dz, void *codes, float *row_scales,
                            uint32_t m, uint32_t n, void *stream);

/* The same by one scale of dz known beforehand, a power of two: codes, and codes_t [n, m] for the weight's gradient, with
 * which m is a multiple of 16. Adds how many elements saturated to *saturated and raises *amax to the largest magnitude
 * of dz, where they are not null. */
int32_t loka_block_backward_static(int32_t device, const void *dh, const void *z, void *dz, void *codes, void *codes_t,
                                   const float *dz_scale, uint64_t *saturated, float *amax, uint32_t m, uint32_t n,
                                   void *stream);

/* For PyTorch 2.10 or later: its dispatcher calls this library for the ops of namespace `ns` that loka.kernels.native_ops
 * defines, with tensors of dispatch key `key` ("CUDA"). `libraries`: the paths of its libtorch_cpu.so and libtorch_cuda.so
 * in this process, separated by ':'. `folders`: as loka_open has them, for GPUs that ops meet first. Once a namespace and
 * key. Nothing of PyTorch is needed to link or load this library. */
int32_t loka_torch_register(const char *libraries, const char *ns, const char *key, const char *folders);

#ifdef __cplusplus
}
#endif

#endif
