// The functions of the CUDA driver that this program uses, on a CPU: the source of the kernels is compiled for it, and the threads of
// a block are fibers that take turns between two calls of __syncthreads or __syncwarp. Built as a library, it takes the place of libcuda.so.1.
//
// What may happen at once or later on a card does so here, too, by a generator of random numbers: copies to shared memory, and what
// is put into a stream. What is waited for happens then at the latest.
#include <setjmp.h>
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

struct float4 { float x, y, z, w; };
static float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
struct D3 { unsigned x, y, z; };
static D3 threadIdx, blockIdx;
#define EMULATED
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static float __fadd_rn(float a, float b) { return a + b; }
static unsigned __float_as_uint(float x) { unsigned u; memcpy(&u, &x, 4); return u; }
static long long __double_as_longlong(double x) { long long u; memcpy(&u, &x, 8); return u; }
static double __longlong_as_double(long long u) { double x; memcpy(&x, &u, 8); return x; }
template <class T> T __ldcg(const T* p) { return *p; }
static unsigned atomicAdd(unsigned* p, unsigned n) { *p += n; return *p - n; }
static void __threadfence() {}
static float half(unsigned short h) {
  int exponent = h >> 10 & 31, fraction = h & 1023;
  float x = exponent == 31 ? fraction ? NAN : INFINITY : ldexpf(exponent ? 1024 + fraction : fraction, (exponent ? exponent : 1) - 25);
  return h >> 15 ? -x : x;
}
static float __uint_as_float(unsigned u) { float x; memcpy(&x, &u, 4); return x; }

static const int threads = 256;
static ucontext_t first[threads]; // where fibers begin; later jumps need no call of the system
static jmp_buf home, fiber[threads];
static bool begun[threads], done[threads];
static int current;
enum Wait : char { NOTHING, WARP, BLOCK, BARRIER }; // the last one and those after it are barriers by number
static Wait waits[threads]; // what each waits for
static void pause(Wait w) {
  waits[current] = w;
  if (!_setjmp(fiber[current])) _longjmp(home, 1);
}
static void __syncthreads() { pause(BLOCK); }
static void __syncwarp() { pause(WARP); }
// at is how many threads are at each barrier.
static int at[16];
static bool complete(int barrier, int of) {
  if (++at[barrier] < of) return false;
  for (Wait& w : waits) if (w == BARRIER + barrier) w = NOTHING;
  at[barrier] = 0;
  return true;
}
static void arrive(int barrier, int of) {
  __syncwarp();
  complete(barrier, of);
}
static void meet(int barrier, int of) {
  __syncwarp();
  if (!complete(barrier, of)) pause(Wait(BARRIER + barrier));
}
// Threads of a warp tell each other values.
template <class T> static T* told(T x) {
  static T all[threads];
  all[current] = x;
  __syncwarp();
  return &all[current / 32 * 32];
}
static unsigned __ballot_sync(unsigned, bool x) {
  unsigned b = 0;
  bool* all = told(x);
  for (int i = 0; i < 32; i++) b |= unsigned(all[i]) << i;
  __syncwarp();
  return b;
}
template <class T> T __shfl_sync(unsigned, T x, int from) {
  T y = told(x)[from];
  __syncwarp();
  return y;
}
static double __shfl_xor_sync(unsigned m, double x, int bits) { return __shfl_sync(m, x, current % 32 ^ bits); }
static unsigned __reduce_max_sync(unsigned, unsigned x) {
  unsigned *all = told(x), y = *std::max_element(all, all + 32);
  __syncwarp();
  return y;
}
static unsigned __reduce_min_sync(unsigned m, unsigned x) { return ~__reduce_max_sync(m, ~x); }
static int __ffs(unsigned x) { return __builtin_ffs(x); }

// added is the shared memory that a launch adds.
static std::vector<float4> addedMemory;
static float4* added() { return addedMemory.data(); }

struct Copy { float4* to; const float* from; };
static std::deque<std::vector<Copy>> groups[threads]; // the last one is not committed
static uint32_t chance() { // of 16 bits
  static uint32_t random = 1;
  random = random * 1664525 + 1013904223;
  return random >> 16;
}
static std::map<uint64_t, size_t> allocated; // sizes
static void copy16(float4* to, const float* from) {
  auto after = allocated.upper_bound((uint64_t)from);
  if (after == allocated.begin() || (uint64_t)(from + 4) > std::prev(after)->first + std::prev(after)->second) abort(); // an illegal address
  if (chance() & 1) memcpy(to, from, 16);
  else groups[current].back().push_back({to, from});
}
static void commit() { groups[current].emplace_back(); }
template <int N> void wait() {
  for (auto& g = groups[current]; g.size() > N + 1; g.pop_front()) for (Copy c : g.front()) memcpy(c.to, c.from, 16);
}

#include "../kernels/products.cu"
#include "../kernels/descent.cu"
#include "../kernels/feedback.cu"
#include "../kernels/factor.cu"
#include "../kernels/refine.cu"
#include "../kernels/choose.cu"
#include "../kernels/chain.cu"
#include "../kernels/logits.cu"
#include "../kernels/experts.cu"
#include "../kernels/recurrence.cu"

static std::function<void()> body;
static void thread() { body(); done[current] = true; _longjmp(home, 1); }

static __attribute__((noinline)) void resume() {
  if (_setjmp(home)) return;
  if (begun[current]) _longjmp(fiber[current], 1);
  begun[current] = true;
  setcontext(&first[current]);
}

// release lets threads go on for which all others of the warp, or of the block, wait, too. It reports whether any go on.
static bool release() {
  auto all = [](int lo, int hi, Wait w) {
    bool any = false;
    for (int t = lo; t < hi; t++) if (!done[t]) {
      if (waits[t] != w) return false;
      any = true;
    }
    for (int t = lo; t < hi; t++) waits[t] = NOTHING;
    return any;
  };
  bool any = false;
  for (int t = 0; t < threads; t++) any |= !done[t] && !waits[t]; // those of a barrier
  for (int t = 0; t < threads; t += 32) any |= all(t, t + 32, WARP);
  return any || all(0, threads, BLOCK);
}

static void run(unsigned gx, unsigned gy) {
  static std::vector<char> stacks(size_t(threads) << 15);
  for (unsigned y = 0; y < gy; y++) for (unsigned x = 0; x < gx; x++) {
    blockIdx = {x, y, 0};
    for (int t = 0; t < threads; t++) {
      begun[t] = done[t] = false;
      waits[t] = NOTHING;
      groups[t].assign(1, {});
      getcontext(&first[t]);
      first[t].uc_stack.ss_sp = &stacks[size_t(t) << 15];
      first[t].uc_stack.ss_size = 1 << 15;
      makecontext(&first[t], thread, 0);
    }
    do {
      int turn = chance() & 1 ? threads - 1 : 0; // the last thread may be the first one
      for (int i = 0; i < threads; i++) if (int t = i ^ turn; !done[t] && !waits[t]) {
        current = t; threadIdx = {unsigned(t), 0, 0};
        resume();
      }
    } while (release());
    for (bool d : done) if (!d) abort(); // waits for ever
  }
}

// Stream is what has been put into a stream, and how much of that is done.
struct Stream {
  std::deque<std::function<void()>> todo;
  size_t finished = 0;
  void until(size_t n) {
    while (finished < n && !todo.empty()) {
      auto f = std::move(todo.front());
      todo.pop_front();
      f();
      finished++;
    }
  }
};
struct Event { Stream* of = nullptr; size_t after = 0; };
static std::vector<Stream*> streams;
static std::mutex one;
typedef std::lock_guard<std::mutex> Lock;

static void put(Stream* s, std::function<void()> f) {
  s->todo.push_back(std::move(f));
  if (chance() % 4) return;
  Stream* any = chance() % 2 ? s : streams[chance() % streams.size()];
  any->until(any->finished + 1 + chance() % 8);
}

enum Kernel { PRODUCT128 = 1, PRODUCT256, PACK, SUM, FEED, DESCEND, PLACE, SLOPES, MOVES, SPREAD, CHOOSE, NORMS, ROTATES,
              ATTENDS, GATES, WHOLES, LAYERS64, LAYERS128, HALVES64, HALVES128, NORM_BACKS, GAMMA_BACKS, GATE_BACKS, QUERY_BACKS, KEY_BACKS,
              DIVERGENCES, LABELS, DRAWS, ROUTES, MEMBERS, INNERS, OUTERS, INNER_HALVES, OUTER_HALVES, CROWDS, CROWDS128, CROWD_HALVES, MIXES,
              WEIGHT_BACKS, PICKS, ROUTE_BACKS, SIGMOIDS, CONVOLVES, RECURRENCES, CONVOLVE_TOKENS, RECURRENCE_TOKENS, AHEADS };
template <class T> static T arg(void** args, int i) { return *(T*)args[i]; }

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* v) { *v = 13000; return 0; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDeviceGet(int* d, int n) { *d = n; return n == 0 ? 0 : 101; }
int cuDeviceGetName(char* name, int n, int) { strncpy(name, "emulated", n); return 0; }
int cuDeviceGetAttribute(int* v, int which, int) { *v = which == 75 ? 8 : which == 16 ? 1 : which == 13 ? 1000 : which == 97 ? 227 << 10 : 0; return 0; }
int cuFuncSetAttribute(uintptr_t, int which, int bytes) { return which == 8 && bytes <= 227 << 10 ? 0 : 1; }
int cuDeviceTotalMem_v2(size_t* n, int) { *n = size_t(8) << 30; return 0; }
int cuDevicePrimaryCtxRetain(void** c, int) { *c = &home; return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuModuleLoadData(void** m, const void*) { *m = &home; return 0; }
int cuModuleGetFunction(uintptr_t* f, void*, const char* name) {
  const char* names[] = {"product128", "product256", "pack", "sum", "feed", "descend", "place", "slopes", "moves", "spread", "choose", "norms", "rotates",
                         "attends", "gates", "wholes", "layers64", "layers128", "halves64", "halves128", "normBacks", "gammaBacks", "gateBacks",
                         "queryBacks", "keyBacks", "divergences", "labels", "draws", "routes", "members", "inners", "outers", "innerHalves",
                         "outerHalves", "crowds", "crowds128", "crowdHalves", "mixes", "weightBacks", "picks", "routeBacks", "sigmoids",
                         "convolves", "recurrences", "convolveTokens", "recurrenceTokens", "aheads"};
  for (int i = 0; i < AHEADS; i++) if (!strcmp(name, names[i])) { *f = i + 1; return 0; }
  return 500;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) { *free = *total = size_t(8) << 30; return 0; }
int cuMemAlloc_v2(uint64_t* p, size_t n) { // what is in new memory is unknown
  if (posix_memalign((void**)p, 256, n)) return 2;
  memset((void*)*p, 0x7f, n);
  Lock l(one);
  allocated[*p] = n;
  return 0;
}
int cuMemFree_v2(uint64_t p) { Lock l(one); allocated.erase(p); free((void*)p); return 0; } // a card would wait first
int cuMemAllocHost_v2(void** p, size_t n) { return posix_memalign(p, 256, n) ? 2 : 0; }
int cuMemFreeHost(void* p) { free(p); return 0; }
int cuMemHostRegister_v2(void*, size_t, unsigned) { return 0; }
int cuMemHostUnregister(void*) { return 0; }
int cuStreamCreate(Stream** s, unsigned) { Lock l(one); streams.push_back(*s = new Stream); return 0; }
int cuStreamCreateWithPriority(Stream** s, unsigned flags, int) { return cuStreamCreate(s, flags); }
int cuEventCreate(Event** e, unsigned) { *e = new Event; return 0; }
int cuEventRecord(Event* e, Stream* s) { Lock l(one); *e = {s, s->finished + s->todo.size()}; return 0; }
int cuEventSynchronize(Event* e) { Lock l(one); if (e->of) e->of->until(e->after); return 0; }
int cuStreamWaitEvent(Stream* s, Event* e, unsigned) { Lock l(one); Event at = *e; if (at.of) put(s, [=] { at.of->until(at.after); }); return 0; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t n, Stream* s) { Lock l(one); put(s, [=] { memcpy((void*)to, from, n); }); return 0; }
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t n, Stream* s) { Lock l(one); put(s, [=] { memcpy(to, (void*)from, n); }); return 0; }
int cuLaunchKernel(uintptr_t f, unsigned gx, unsigned gy, unsigned, unsigned, unsigned, unsigned, unsigned shared, Stream* s, void** a, void**) {
  Lock l(one);
  auto dst = arg<float*>(a, 0);
  std::function<void()> g;
  switch (f) {
  case PRODUCT128: case PRODUCT256: {
    auto x = arg<Factor>(a, 1), y = arg<Factor>(a, 2);
    int m = arg<int>(a, 3), n = arg<int>(a, 4), k = arg<int>(a, 5), ldd = arg<int>(a, 6), mode = arg<int>(a, 7), reach = arg<int>(a, 8);
    g = [=] { f == PRODUCT128 ? product128(dst, x, y, m, n, k, ldd, mode, reach) : product256(dst, x, y, m, n, k, ldd, mode, reach); };
    break;
  }
  case PACK: {
    auto src = arg<float*>(a, 1);
    int rows = arg<int>(a, 2), k = arg<int>(a, 3);
    g = [=] { pack(dst, src, rows, k); };
    break;
  }
  case SUM: {
    auto x = arg<float*>(a, 1);
    auto n = arg<unsigned long long>(a, 2);
    g = [=] { sum(dst, x, n); };
    break;
  }
  case FEED: {
    auto d = arg<Feedback>(a, 0);
    g = [=] { feed(d); };
    break;
  }
  case DESCEND: {
    auto d = arg<Descent>(a, 0);
    g = [=] { descend(d); };
    break;
  }
  case PLACE: {
    auto panel = arg<long long>(a, 1), line = arg<long long>(a, 2), step = arg<long long>(a, 3);
    auto src = arg<float*>(a, 4);
    int rows = arg<int>(a, 5), cols = arg<int>(a, 6), subtract = arg<int>(a, 7);
    g = [=] { place(dst, panel, line, step, src, rows, cols, subtract); };
    break;
  }
  case SLOPES: {
    auto r = arg<Refinement>(a, 0);
    int lo = arg<int>(a, 1), sweep = arg<int>(a, 2), but = arg<int>(a, 3);
    g = [=] { slopes(r, lo, sweep, but); };
    break;
  }
  case MOVES: case SPREAD: case AHEADS: {
    auto r = arg<Refinement>(a, 0);
    int lo = arg<int>(a, 1), sweep = arg<int>(a, 2);
    g = [=] { (f == MOVES ? moves : f == SPREAD ? spread : aheads)(r, lo, sweep); };
    break;
  }
  case CHOOSE: {
    auto c = arg<Choice>(a, 0);
    int turn = arg<int>(a, 1), from = arg<int>(a, 2);
    g = [=] { choose(c, turn, from); };
    break;
  }
  case NORMS: {
    auto src = arg<float*>(a, 1), gamma = arg<float*>(a, 2);
    int runs = arg<int>(a, 3), width = arg<int>(a, 4);
    auto eps = arg<float>(a, 5);
    g = [=] { norms(dst, src, gamma, runs, width, eps); };
    break;
  }
  case ROTATES: {
    auto cosine = arg<float*>(a, 1), sine = arg<float*>(a, 2);
    int heads = arg<int>(a, 3), dim = arg<int>(a, 4), turned = arg<int>(a, 5), of = arg<int>(a, 6);
    auto places = arg<int*>(a, 7);
    g = [=] { rotates(dst, cosine, sine, heads, dim, turned, of, places); };
    break;
  }
  case ATTENDS: {
    auto d = arg<Attend>(a, 0);
    g = [=] { attends(d); };
    break;
  }
  case LAYERS64: case LAYERS128: case HALVES64: case HALVES128: {
    auto l = arg<Layers>(a, 0);
    g = [=] { (f == LAYERS64 ? layers64 : f == LAYERS128 ? layers128 : f == HALVES64 ? halves64 : halves128)(l); };
    break;
  }
  case DIVERGENCES: {
    auto kl = arg<double*>(a, 0);
    auto p = arg<float*>(a, 1), q = arg<float*>(a, 2);
    int n = arg<int>(a, 3);
    g = [=] { divergences(kl, p, q, n); };
    break;
  }
  case LABELS: {
    auto squares = arg<double*>(a, 0), at = arg<double*>(a, 2);
    auto rows = arg<float*>(a, 1);
    int n = arg<int>(a, 3);
    g = [=] { labels(squares, rows, at, n); };
    break;
  }
  case DRAWS: {
    auto tokens = arg<int*>(a, 0);
    auto rows = arg<float*>(a, 1);
    auto at = arg<double*>(a, 2), sums = arg<double*>(a, 3);
    int n = arg<int>(a, 4);
    g = [=] { draws(tokens, rows, at, sums, n); };
    break;
  }
  case ROUTES: {
    auto d = arg<Routes>(a, 0);
    g = [=] { routes(d); };
    break;
  }
  case MEMBERS: {
    auto choices = arg<int*>(a, 0), places = arg<int*>(a, 1), ends = arg<int*>(a, 2), chosen = arg<int*>(a, 3);
    int count = arg<int>(a, 4);
    g = [=] { members(choices, places, ends, chosen, count); };
    break;
  }
  case INNERS: case OUTERS: case INNER_HALVES: case OUTER_HALVES: case CROWDS128: case CROWD_HALVES: {
    auto d = arg<Crowd>(a, 0);
    g = [=] {
      (f == INNERS ? inners : f == OUTERS ? outers : f == INNER_HALVES ? innerHalves : f == OUTER_HALVES ? outerHalves :
       f == CROWDS128 ? crowds128 : crowdHalves)(d);
    };
    break;
  }
  case CROWDS: {
    auto d = arg<Crowd>(a, 1);
    g = [=] { crowds(dst, d); };
    break;
  }
  case MIXES: {
    auto rows = arg<float*>(a, 1), weights = arg<float*>(a, 2);
    auto places = arg<int*>(a, 3);
    int width = arg<int>(a, 4), of = arg<int>(a, 5);
    g = [=] { mixes(dst, rows, weights, places, width, of); };
    break;
  }
  case WEIGHT_BACKS: {
    auto dz = arg<float*>(a, 1), z = arg<float*>(a, 2), weights = arg<float*>(a, 3);
    auto choices = arg<int*>(a, 4);
    int count = arg<int>(a, 5), width = arg<int>(a, 6);
    g = [=] { weightBacks(dst, dz, z, weights, choices, count, width); };
    break;
  }
  case PICKS: {
    auto src = arg<float*>(a, 1), weights = arg<float*>(a, 2);
    auto choices = arg<int*>(a, 3);
    int width = arg<int>(a, 4), of = arg<int>(a, 5);
    g = [=] { picks(dst, src, weights, choices, width, of); };
    break;
  }
  case ROUTE_BACKS: {
    auto d = arg<Routes>(a, 0);
    auto dw = arg<float*>(a, 1);
    g = [=] { routeBacks(d, dw); };
    break;
  }
  case WHOLES: {
    auto d = arg<Whole>(a, 0);
    g = [=] { wholes(d); };
    break;
  }
  case GATES: {
    auto x = arg<float*>(a, 1), by = arg<float*>(a, 2);
    auto n = arg<unsigned long long>(a, 3);
    g = [=] { gates(dst, x, by, n); };
    break;
  }
  case GATE_BACKS: {
    auto by = arg<float*>(a, 1), d = arg<float*>(a, 2);
    auto n = arg<unsigned long long>(a, 3);
    g = [=] { gateBacks(dst, by, d, n); };
    break;
  }
  case NORM_BACKS: {
    auto d = arg<float*>(a, 1), x = arg<float*>(a, 2), gamma = arg<float*>(a, 3);
    auto roots = arg<double*>(a, 4);
    int runs = arg<int>(a, 5), width = arg<int>(a, 6);
    auto eps = arg<float>(a, 7);
    g = [=] { normBacks(dst, d, x, gamma, roots, runs, width, eps); };
    break;
  }
  case GAMMA_BACKS: {
    auto sums = arg<double*>(a, 0), roots = arg<double*>(a, 3);
    auto d = arg<float*>(a, 1), x = arg<float*>(a, 2);
    int runs = arg<int>(a, 4), width = arg<int>(a, 5), span = arg<int>(a, 6);
    g = [=] { gammaBacks(sums, d, x, roots, runs, width, span); };
    break;
  }
  case SIGMOIDS: {
    auto by = arg<float*>(a, 1);
    auto n = arg<unsigned long long>(a, 2);
    int each = arg<int>(a, 3);
    g = [=] { sigmoids(dst, by, n, each); };
    break;
  }
  case CONVOLVES: {
    auto d = arg<Convolution>(a, 0);
    auto places = arg<int*>(a, 1);
    g = [=] { convolves(d, places); };
    break;
  }
  case CONVOLVE_TOKENS: {
    auto d = arg<Convolution>(a, 0);
    auto left = arg<float*>(a, 1);
    int at = arg<int>(a, 2);
    g = [=] { convolveTokens(d, left, at); };
    break;
  }
  case RECURRENCE_TOKENS: {
    auto d = arg<Recurrence>(a, 0);
    auto left = arg<float*>(a, 1);
    int at = arg<int>(a, 2);
    g = [=] { recurrenceTokens(d, left, at); };
    break;
  }
  case RECURRENCES: {
    auto d = arg<Recurrence>(a, 0);
    g = [=] { recurrences(d); };
    break;
  }
  case QUERY_BACKS: case KEY_BACKS: {
    auto d = arg<Back>(a, 0);
    g = [=] { f == QUERY_BACKS ? queryBacks(d) : keyBacks(d); };
    break;
  }
  }
  put(s, [=] {
    addedMemory.assign(shared / sizeof(float4), {NAN, NAN, NAN, NAN});
    body = g;
    run(gx, gy);
  });
  return 0;
}
}
