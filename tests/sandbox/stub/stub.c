/*
 * Stands in for libcuda.so.1 where there is no GPU. Like the driver, it learns each kernel's parameters from the cubin
 * and reads that many bytes at each address of a launch. It writes every call of interest to $STUB_LOG, one JSON object
 * a line. $STUB_FAIL=NAME:CODE makes one function fail; $STUB_VERSION is the driver's version.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"

enum { MOST_PARAMETERS = 512, MOST_KERNELS = 8 };

struct kernel {
    char name[512];
    int count;
    struct { uint32_t offset, size; } parameters[MOST_PARAMETERS];
};

struct module {
    int count;
    struct kernel kernels[MOST_KERNELS];
};

/* the log ---------------------------------------------------------------------------------------------------------- */

static FILE *begin(const char *call) {
    const char *path = getenv("STUB_LOG");
    FILE *log = fopen(path ? path : "/dev/null", "a");
    if (!log)
        abort();
    fprintf(log, "{\"call\":\"%s\"", call);
    return log;
}

static void end(FILE *log) {
    fprintf(log, "}\n");
    fclose(log);
}

static void number(FILE *log, const char *name, uint64_t value) {
    fprintf(log, ",\"%s\":%llu", name, (unsigned long long)value);
}

static void hex(FILE *log, const void *data, uint32_t size) {
    fprintf(log, "\"");
    for (uint32_t i = 0; i < size; i++)
        fprintf(log, "%02x", ((const unsigned char *)data)[i]);
    fprintf(log, "\"");
}

static void words(FILE *log, const char *name, const uint32_t *values, uint32_t count) {
    fprintf(log, ",\"%s\":[", name);
    for (uint32_t i = 0; i < count; i++)
        fprintf(log, "%s%u", i ? "," : "", values[i]);
    fprintf(log, "]");
}

static void longs(FILE *log, const char *name, const uint64_t *values, uint32_t count) {
    fprintf(log, ",\"%s\":[", name);
    for (uint32_t i = 0; i < count; i++)
        fprintf(log, "%s%llu", i ? "," : "", (unsigned long long)values[i]);
    fprintf(log, "]");
}

static Status told_to_fail(const char *name) {
    const char *wanted = getenv("STUB_FAIL");
    size_t length = strlen(name);
    return wanted && !strncmp(wanted, name, length) && wanted[length] == ':' ? atoi(wanted + length + 1) : FINE;
}

#define MAY_FAIL()                             \
    do {                                       \
        Status status = told_to_fail(__func__); \
        if (status)                            \
            return status;                     \
    } while (0)

/* modules ---------------------------------------------------------------------------------------------------------- */

static void read_parameters(struct kernel *k, const unsigned char *info, uint64_t size) {
    for (uint64_t at = 0; at + 4 <= size;) {
        uint16_t length = (uint16_t)(info[at + 2] | info[at + 3] << 8);
        const unsigned char *record = info + at + 4;
        if (info[at] == SIZED && info[at + 1] == KPARAM_INFO) {
            uint16_t ordinal, offset;
            uint32_t bits;
            memcpy(&ordinal, record + 4, 2);
            memcpy(&offset, record + 6, 2);
            memcpy(&bits, record + 8, 4);
            if (ordinal >= MOST_PARAMETERS)
                abort();
            k->parameters[ordinal].offset = offset;
            k->parameters[ordinal].size = bits >> 18;
            k->count = ordinal + 1 > k->count ? ordinal + 1 : k->count;
        }
        at += 4 + (info[at] == SIZED ? length : 0);
    }
}

Status cuModuleLoadData(struct module **loaded, const void *image) {
    MAY_FAIL();
    const unsigned char *file = image;
    if (memcmp(file, ELFMAG, SELFMAG))
        return INVALID_IMAGE;
    const Elf64_Ehdr *header = image;
    const Elf64_Shdr *sections = (const void *)(file + header->e_shoff);
    const char *names = (const char *)file + sections[header->e_shstrndx].sh_offset;
    struct module *m = calloc(1, sizeof *m);
    for (int i = 0; i < header->e_shnum && m->count < MOST_KERNELS; i++) {
        const char *name = names + sections[i].sh_name;
        if (strncmp(name, ".nv.info.", 9))
            continue;
        struct kernel *k = &m->kernels[m->count++];
        snprintf(k->name, sizeof k->name, "%s", name + 9);
        read_parameters(k, file + sections[i].sh_offset, sections[i].sh_size);
    }
    *loaded = m;
    end(begin("load"));
    return FINE;
}

Status cuModuleGetFunction(struct kernel **found, struct module *m, const char *name) {
    MAY_FAIL();
    for (int i = 0; i < m->count; i++)
        if (!strcmp(m->kernels[i].name, name)) {
            *found = &m->kernels[i];
            return FINE;
        }
    return NOT_FOUND;
}

Status cuModuleUnload(struct module *m) {
    free(m);
    end(begin("unload"));
    return FINE;
}

Status cuFuncSetAttribute(struct kernel *k, int attribute, int value) {
    MAY_FAIL();
    FILE *log = begin("attribute");
    fprintf(log, ",\"kernel\":\"%s\"", k->name);
    number(log, "which", (uint64_t)attribute);
    number(log, "value", (uint64_t)value);
    end(log);
    return FINE;
}

Status cuFuncSetCacheConfig(struct kernel *k, int preference) {
    FILE *log = begin("cache");
    fprintf(log, ",\"kernel\":\"%s\"", k->name);
    number(log, "value", (uint64_t)preference);
    end(log);
    return FINE;
}

Status cuFuncGetAttribute(int *value, int attribute, struct kernel *k) {
    (void)k;
    *value = attribute == MAX_THREADS ? 1024 : attribute == STATIC_SHARED ? 0 : 32;
    return FINE;
}

/* launches --------------------------------------------------------------------------------------------------------- */

Status cuLaunchKernelEx(const struct config *c, struct kernel *k, void **parameters, void **extra) {
    MAY_FAIL();
    if (extra)
        return INVALID_VALUE;
    FILE *log = begin("launch");
    fprintf(log, ",\"kernel\":\"%s\"", k->name);
    words(log, "grid", c->grid, 3);
    words(log, "block", c->block, 3);
    number(log, "shared", c->shared);
    number(log, "stream", (uint64_t)(uintptr_t)c->stream);
    fprintf(log, ",\"attributes\":[");
    for (uint32_t i = 0; i < c->count; i++) {
        fprintf(log, "%s[%u,", i ? "," : "", c->attributes[i].id);
        hex(log, c->attributes[i].value, sizeof c->attributes[i].value);
        fprintf(log, "]");
    }
    fprintf(log, "],\"parameters\":[");
    for (int i = 0; i < k->count; i++) {
        fprintf(log, "%s[%u,", i ? "," : "", k->parameters[i].offset);
        hex(log, parameters[i], k->parameters[i].size);
        fprintf(log, "]");
    }
    fprintf(log, "]");
    end(log);
    return FINE;
}

/* The map that it makes is all ones behind its address, so that a bit that the caller clears is seen. */
Status cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *sizes,
                              const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                              int swizzle, int promotion, int fill) {
    MAY_FAIL();
    if ((uintptr_t)map % 64 || (uintptr_t)address % 16 || rank < 1 || rank > 5)
        return INVALID_VALUE;
    FILE *log = begin("encode");
    number(log, "type", (uint64_t)type);
    number(log, "address", (uint64_t)(uintptr_t)address);
    longs(log, "sizes", sizes, rank);
    longs(log, "strides", strides, rank - 1);
    words(log, "box", box, rank);
    words(log, "steps", steps, rank);
    number(log, "interleave", (uint64_t)interleave);
    number(log, "swizzle", (uint64_t)swizzle);
    number(log, "promotion", (uint64_t)promotion);
    number(log, "fill", (uint64_t)fill);
    end(log);
    memset(map, 0xFF, 128);
    memcpy(map, &address, sizeof address);
    return FINE;
}

/* what else is asked for ------------------------------------------------------------------------------------------- */

Status cuGetErrorName(Status status, const char **name) {
    switch (status) {
    case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return FINE;
    case 2: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return FINE;
    case INVALID_IMAGE: *name = "CUDA_ERROR_INVALID_IMAGE"; return FINE;
    case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; return FINE;
    case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return FINE;
    }
    *name = NULL; /* as the driver does for a number that it does not know */
    return INVALID_VALUE;
}

Status cuGetErrorString(Status status, const char **text) { return cuGetErrorName(status, text); }

Status cuDriverGetVersion(int *version) {
    const char *wanted = getenv("STUB_VERSION");
    *version = wanted ? atoi(wanted) : 13000;
    return FINE;
}

Status cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case SHARED_OPTIN: *value = 232448; return FINE;
    case SHARED_SM: *value = 233472; return FINE;
    case SM_COUNT: *value = 132; return FINE;
    case MAJOR: *value = 9; return FINE;
    case MINOR: *value = 0; return FINE;
    case WARP: *value = 32; return FINE;
    }
    *value = 65536;
    return FINE;
}

Status cuInit(unsigned flags) { (void)flags; return FINE; }
Status cuDeviceGet(int *device, int ordinal) { *device = ordinal; return FINE; }
Status cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = (void *)1; return FINE; }
Status cuCtxGetCurrent(void **context) { *context = (void *)1; return FINE; }
Status cuCtxSetCurrent(void *context) { (void)context; return FINE; }
Status cuCtxGetLimit(size_t *value, int limit) { (void)limit; *value = 1; return FINE; }
Status cuCtxSetLimit(int limit, size_t value) { (void)limit; (void)value; return FINE; }
Status cuPointerGetAttribute(uint64_t *value, int attribute, uint64_t p) { (void)attribute; *value = p; return FINE; }
Status cuOccupancyMaxActiveClusters(int *n, void *k, const void *c) { (void)k; (void)c; *n = 1; return FINE; }
