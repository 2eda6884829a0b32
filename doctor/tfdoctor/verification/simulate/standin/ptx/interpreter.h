/* The interpreter as the driver calls it. Results are the driver's codes (0: fine); `why` is told in words. */
#pragma once
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
struct ptx_module;
struct ptx_kernel;
struct ptx_grid {
    unsigned grid[3], block[3], shared; /* shared: bytes, beside those that the kernel declares */
};
/* 209 where the image has no PTX that a card of this compute capability (90: 9.0) could run. The text is copied. */
int ptx_load(const void *image, int capability, struct ptx_module **module, char *why, size_t size);
int ptx_serves(const void *image, int capability); /* whether a card finds code there: PTX, or machine code, which is not run here */
void ptx_unload(struct ptx_module *module);
int ptx_isa(const struct ptx_module *module); /* 85 where its text is PTX 8.5 */
/* 500 where the module has no kernel, or no variable, of that name. */
int ptx_find(struct ptx_module *module, const char *name, struct ptx_kernel **kernel, char *why, size_t size);
int ptx_variable(struct ptx_module *module, const char *name, void **address, size_t *bytes);
/* A kernel's parameters: how many; where and how long parameter n is in a buffer of them all, in bytes. */
size_t ptx_parameters(const struct ptx_kernel *kernel);
void ptx_parameter(const struct ptx_kernel *kernel, size_t n, size_t *offset, size_t *bytes);
size_t ptx_shared_bytes(const struct ptx_kernel *kernel);
unsigned ptx_threads(const struct ptx_kernel *kernel); /* the most that a block of it may have */
int ptx_target(const struct ptx_kernel *kernel);       /* 80 where its text is for sm_80, whatever the card is */
/* Runs it to its end. `parameters`: a pointer to each. One launch at a time: others wait. */
int ptx_launch(const struct ptx_kernel *kernel, const struct ptx_grid *grid, void *const *parameters, char *why, size_t size);
#ifdef __cplusplus
}
#endif
