// The functions of the CUDA driver that this program uses, on a CPU: the source of the kernels is compiled for it, and the threads of
// a block are fibers that take turns between two calls of __syncthreads. Built as a library, it takes the place of libcuda.so.1.
#include <ucontext.h>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

struct float4 { float x, y, z, w; };
static float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
struct D3 { int x, y, z; };
static D3 threadIdx, blockIdx;
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(x)
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static float __fadd_rn(float a, float b) { return a + b; }

static const int threads = 256;
static ucontext_t home, fiber[threads];
static bool done[threads];
static int current;
static void __syncthreads() { swapcontext(&fiber[current], &home); }

#include "../kernels/products.cu"

enum Kernel { ROWS_PACKED = 1, ROWS_POSITIONS, POSITIONS_POSITIONS, SUM };
static Kernel which;
static void** args;
template <class T> static T arg(int i) { return *(T*)args[i]; }
static void body() {
  #define CALL(f) f(arg<float*>(0), arg<float*>(1), arg<float*>(2), arg<int>(3), arg<int>(4), arg<int>(5), arg<int>(6), arg<int>(7), arg<int>(8), arg<int>(9))
  switch (which) {
  case ROWS_PACKED: CALL(rows_packed); break;
  case ROWS_POSITIONS: CALL(rows_positions); break;
  case POSITIONS_POSITIONS: CALL(positions_positions); break;
  case SUM: sum(arg<float*>(0), arg<float*>(1), arg<unsigned long long>(2)); break;
  }
  done[current] = true;
}

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* v) { *v = 13000; return 0; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDeviceGet(int* d, int n) { *d = n; return n == 0 ? 0 : 101; }
int cuDeviceGetName(char* name, int n, int) { strncpy(name, "emulated", n); return 0; }
int cuDeviceGetAttribute(int* v, int which, int) { *v = which == 75 ? 8 : 0; return 0; }
int cuDeviceTotalMem_v2(size_t* n, int) { *n = size_t(8) << 30; return 0; }
int cuDevicePrimaryCtxRetain(void** c, int) { *c = &home; return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuModuleLoadData(void** m, const void*) { *m = &home; return 0; }
int cuModuleGetFunction(uintptr_t* f, void*, const char* name) {
  const char* names[] = {"rows_packed", "rows_positions", "positions_positions", "sum"};
  for (int i = 0; i < 4; i++) if (!strcmp(name, names[i])) { *f = i + 1; return 0; }
  return 500;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) { *free = *total = size_t(8) << 30; return 0; }
int cuMemAlloc_v2(uint64_t* p, size_t n) { return posix_memalign((void**)p, 256, n) ? 2 : 0; }
int cuMemFree_v2(uint64_t p) { free((void*)p); return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t n) { memcpy((void*)to, from, n); return 0; }
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t n) { memcpy(to, (void*)from, n); return 0; }
int cuLaunchKernel(uintptr_t f, unsigned gx, unsigned gy, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void** given, void**) {
  static std::vector<char> stacks(size_t(threads) << 14);
  which = Kernel(f); args = given;
  for (unsigned y = 0; y < gy; y++) for (unsigned x = 0; x < gx; x++) {
    blockIdx = {int(x), int(y), 0};
    for (int t = 0; t < threads; t++) {
      done[t] = false;
      getcontext(&fiber[t]);
      fiber[t].uc_stack.ss_sp = &stacks[size_t(t) << 14];
      fiber[t].uc_stack.ss_size = 1 << 14;
      fiber[t].uc_link = &home;
      makecontext(&fiber[t], body, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (int t = 0; t < threads; t++) if (!done[t]) {
        any = true; current = t; threadIdx = {t, 0, 0};
        swapcontext(&home, &fiber[t]);
      }
    }
  }
  return 0;
}
}
