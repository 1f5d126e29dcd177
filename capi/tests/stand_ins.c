/* libcuda and libnvrtc of a machine without a GPU: say "done", and print launches. */
#include <stdio.h>
#include <string.h>

typedef struct { int id; char pad[4]; int value[16]; } attribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    attribute *attributes;
    unsigned count;
} launch;

static void *const PRIMARY = (void *)0xC0;
/* The caller's own. */
static _Thread_local void *current = (void *)0xCA;
static char names[64][96];
static int count;

int cuGetErrorName(int code, const char **name) { *name = code == 101 ? "CUDA_ERROR_INVALID_DEVICE" : "CUDA_ERROR"; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *devices) { *devices = 1; return 0; }
int cuDeviceGetName(char *name, int room, int device) { strncpy(name, "Stand-in", room); return 0; }
int cuDeviceGetPCIBusId(char *name, int room, int device) { *name = 0; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 16 ? 132 : attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 97 ? 232448 : 1 << 20;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = PRIMARY; return 0; }
int cuCtxSetCurrent(void *context) { current = context; return 0; }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuModuleLoadData(void **module, const void *image) {
    if (memcmp(image, "cub", 4) != 0) return 200;
    printf("  module loaded, context %s\n", current == PRIMARY ? "the primary one" : "another");
    return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    strcpy(names[count], name);
    *function = names[count++];
    return 0;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) { *value = 1024; return 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int cuTensorMapEncodeTiled(unsigned long *map, int type, unsigned rank, void *address, const unsigned long *sizes,
                           const unsigned long *pitches, const unsigned *box, const unsigned *steps, int interleave,
                           int swizzle, int promotion, int fill) {
    printf("  map %s at %p: %lu x %lu, pitch %lu, box %u x %u\n", type == 9 ? "BF16" : "bytes", address, sizes[1],
           sizes[0], pitches[0], box[1], box[0]);
    return (unsigned long)map % 64 != 0;
}
int cuLaunchKernelEx(const launch *l, void *function, void **arguments, void **extra) {
    printf("  %s <<<%u, %u, %u, %p>>>", (const char *)function, l->grid[0], l->block[0], l->shared, l->stream);
    for (unsigned i = 0; i < l->count; i++) printf(" [%d: %d]", l->attributes[i].id, l->attributes[i].value[0]);
    if (current != PRIMARY) printf(" in a context of another");
    if (strncmp(function, "sm90", 4) == 0) {
        int is_block = strstr(function, "_block_") != NULL, is_static = is_block || strstr(function, "static");
        int maps = strstr(function, "_all_") ? 5 : 3, pointers = is_block ? 4 : is_static ? 3 : 2;
        for (int i = 0; i < pointers; i++) printf(" %#lx", *(unsigned long *)arguments[maps + i]);
        const unsigned *shape = arguments[maps + pointers];
        printf(" m %u n %u k %u, %u %u", shape[0], shape[1], shape[2], shape[6], shape[7]);
        if (is_static) printf(" bias %#lx", *(unsigned long *)(shape + 8));
    } else if (strncmp(function, "block", 5) == 0) {
        int is_static = strstr(function, "static") != NULL, pointers = is_static ? 8 : strstr(function, "backward") ? 5 : 4;
        for (int i = 0; i < pointers; i++) printf(" %#lx", *(unsigned long *)arguments[i]);
        for (int i = 0; i <= is_static; i++) printf(" %u", *(unsigned *)arguments[pointers + i]);
    } else if (strcmp(function, "cast_static_turned") == 0) {
        const unsigned long *of = arguments[0];
        for (int at = 0; at < 4; at++, of += 7) {
            const unsigned *sizes = (const unsigned *)(of + 6);
            if (sizes[0] == 0) break;
            for (int i = 0; i < 6; i++) printf(" %#lx", of[i]);
            printf(" %u x %u,", sizes[0], sizes[1]);
        }
        const unsigned *first = (const unsigned *)((const unsigned long *)arguments[0] + 28);
        printf(" from %u %u %u %u", first[0], first[1], first[2], first[3]);
    }
    printf("\n");
    fflush(stdout);
    return 0;
}

int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
int nvrtcCreateProgram(void **p, const char *source, const char *name, int n, const void *h, const void *i) {
    printf("  compiling %s\n", name);
    return 0;
}
int nvrtcGetCUBINSize(void *p, unsigned long *n) { *n = 4; return 0; }
int nvrtcGetCUBIN(void *p, char *bytes) { memcpy(bytes, "cub", 4); return 0; }

#define DONE(name) int name() { return 0; }
