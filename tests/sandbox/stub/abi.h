/* The part of the CUDA driver's binary interface that a launch touches. Written from its documented layout. */
#ifndef STUB_ABI_H
#define STUB_ABI_H

#include <stdint.h>

typedef int Status;
enum { FINE = 0, INVALID_VALUE = 1, INVALID_IMAGE = 200, NOT_FOUND = 500 };

/* CUlaunchAttribute: an id, padding to eight bytes, a value of 64 bytes. */
struct attribute {
    uint32_t id, padding;
    unsigned char value[64];
};

/* CUlaunchConfig. */
struct config {
    uint32_t grid[3], block[3], shared;
    void *stream;
    const struct attribute *attributes;
    uint32_t count;
};

/* Attributes of a device that Triton's launcher asks for. */
enum { SHARED_OPTIN = 97, SHARED_SM = 81, SM_COUNT = 16, MAJOR = 75, MINOR = 76, WARP = 10 };

/* Attributes of a function. */
enum { MAX_THREADS = 0, STATIC_SHARED = 1 };

/* NVIDIA's part of a cubin: records of .nv.info sections. */
enum { SIZED = 4, KPARAM_INFO = 0x17 };

#endif
