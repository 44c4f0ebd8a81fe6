// Products of float32 matrices in the order of sums of runtime/kernel: segments of 256 positions, each a chain of fused
// multiply-adds from +0 in ascending order, segments added in ascending order. Every element has its own chain in the registers of
// one thread, so its bits depend neither on the tile nor on the grid nor on the card.

#define TN 128  // columns of a tile
#define THREADS 256
#define SEGMENT 256
#define PANEL 32

// What becomes of a sum: it is written; every segment of it is added to the result, in the lower triangle alone.
enum { WRITE, ADD_LOWER };

// Which positions the sums of a tile have: all, those until its last column, or those from its first column on.
enum { ALL, UNTIL, FROM };

#ifndef EMULATED
// copy16 starts to copy 16 bytes to shared memory, and commit ends a group of such copies; wait<N> waits for all but N groups.
__device__ __forceinline__ void copy16(float4* to, const float* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
// meet waits until so many threads are at a barrier, whole warps, and arrive is one of them and goes on. Barrier 0 is __syncthreads.
__device__ __forceinline__ void meet(int barrier, int threads) {
  __syncwarp();
  asm volatile("bar.sync %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive(int barrier, int threads) {
  __syncwarp();
  asm volatile("bar.arrive %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}
// half is an F16 as float32.
__device__ __forceinline__ float half(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
// added is the shared memory that a launch adds.
__device__ __forceinline__ float4* added() {
  extern __shared__ float4 memory[];
  return memory;
}
#endif

// Factor is a matrix whose element (row r, position p) is at r/32*panel + p*step + r%32: panels of 32 rows [panels][k][32], with
// panel 32*k and step 32, or rows that lie together [k][ld], with panel 32 and step ld, a multiple of 4. Elements of panels may have 16 bits.
struct Factor {
  const float* at;
  long long panel, step;
  int type;
};
enum { F32, BF16, F16 };

// from is a factor in panels without its first positions.
__device__ __forceinline__ Factor from(Factor f, int positions) {
  if (f.type == F32) f.at += positions * PANEL;
  else f.at = (const float*)((const unsigned short*)f.at + positions * PANEL);
  return f;
}

// Copies are those of one thread, of TK positions of ROWS rows to shared memory. Rows outside the matrix are not copied; no sum
// that is kept takes them. With PACKED rows are known to lie in panels.
template <int ROWS, int TK, bool PACKED> struct Copies {
  static const int PANELS = THREADS / (8 * TK); // that all threads copy at a time
  const float* from;
  int r, q, rows; // the rows from r on
  __device__ __forceinline__ Copies(Factor f, int first, int m) {
    int t = threadIdx.x, panel = t / (8 * TK);
    q = t / 8 % TK;
    r = panel * PANEL + t % 8 * 4;
    rows = m - first - r;
    from = f.at + (first / PANEL + panel) * f.panel + q * (PACKED ? PANEL : f.step) + t % 8 * 4;
  }
  // start copies those of the first `left` of the next positions.
  __device__ __forceinline__ void start(float4 (*to)[ROWS / 4], Factor f, int left) {
    #pragma unroll
    for (int i = 0; i < ROWS / PANEL / PANELS; i++)
      if (i * PANELS * PANEL < rows && q < left) copy16(&to[q][r / 4 + i * PANELS * 8], from + i * PANELS * f.panel);
    from += TK * (PACKED ? PANEL : f.step);
  }
  __device__ __forceinline__ void widen(float4 (*)[ROWS / 4]) {}
};

// Halves are copies as above of elements of 16 bits: every thread copies eight, of 16 positions of 128 rows. They go where the widened ones are
// afterwards.
struct Halves {
  const unsigned short* from;
  int rows, type; // the rows from the thread's on
  __device__ __forceinline__ Halves(Factor f, int first, int m) {
    int r = threadIdx.x % 16 * 8;
    rows = m - first - r;
    type = f.type;
    from = (const unsigned short*)f.at + (first + r) / PANEL * f.panel + threadIdx.x / 16 * PANEL + r % PANEL;
  }
  __device__ __forceinline__ void start(float4 (*to)[TN / 4], Factor f, int left) {
    int q = threadIdx.x / 16; // left may be less than 0
    if (rows > 0 && q < left) copy16(&to[0][threadIdx.x], (const float*)from);
    from += 16 * PANEL;
  }
  __device__ __forceinline__ float4 widened(float x, float y) {
    unsigned u = __float_as_uint(x), v = __float_as_uint(y);
    if (type == F16) return make_float4(half(u & 0xffff), half(u >> 16), half(v & 0xffff), half(v >> 16));
    return make_float4(__uint_as_float(u << 16), __uint_as_float(u & 0xffff0000u), __uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
  }
  // widen lets every thread take its own elements before the first of them is put to its place.
  __device__ __forceinline__ void widen(float4 (*to)[TN / 4]) {
    float4 x = to[0][threadIdx.x];
    __syncthreads();
    float4* at = &to[threadIdx.x / 16][threadIdx.x % 16 * 2];
    at[0] = widened(x.x, x.y);
    at[1] = widened(x.z, x.w);
  }
};

template <bool FIRST, class A, class B> struct Either { typedef A Type; };
template <class A, class B> struct Either<false, A, B> { typedef B Type; };

__device__ __forceinline__ void fma4(float* s, float x, float4 y) {
  s[0] = __fmaf_rn(x, y.x, s[0]); s[1] = __fmaf_rn(x, y.y, s[1]); s[2] = __fmaf_rn(x, y.z, s[2]); s[3] = __fmaf_rn(x, y.w, s[3]);
}

// Turn is one of several blocks that add a segment each to the same tile, in the order of the segments. The last one adds a bias, unless that is null.
struct Turn {
  volatile unsigned* next; // segment; 0 when the last one has been added
  unsigned segment, segments;
  const float* bias;
};

// A block computes a tile of 64*R rows and 128 columns, a thread 4*R rows and 8 columns of it; shared memory has STAGES times TK
// positions. The threads of a warp are 4 x 8, such that neighbours read the same words of shared memory. With TURNS k is at most a segment; with HALVES
// elements of b have 16 bits.
template <int R, int TK, int STAGES, bool TURNS, bool HALVES>
__device__ __forceinline__ void multiply(float4* memory, float* dst, Factor a, Factor b, int m, int n, int k, int ldd, int mode, int reach, int i0, int j0,
                                         Turn turn) {
  const int TM = 64 * R;
  auto sa = (float4 (*)[TK][TM / 4])memory;
  auto sb = (float4 (*)[TK][TN / 4])(memory + STAGES * TK * TM / 4);
  if (mode == ADD_LOWER && j0 > i0 + TM - 1) return;
  if (reach == UNTIL && j0 + TN < k) k = j0 + TN;
  if (reach == FROM) { a.at += j0 * a.step; b.at += j0 * b.step; k -= j0; }
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int row = warp / 2 * (4 * R) + (lane & 1) + lane / 16 * 2, column = warp % 2 * 16 + lane / 2 % 8; // in units of 4
  float s[4 * R][8];
  #pragma unroll
  for (int i = 0; i < 4 * R; i++)
    #pragma unroll
    for (int j = 0; j < 8; j++) s[i][j] = 0.f;
  Copies<TM, TK, TURNS> ca(a, i0, m);
  typename Either<HALVES, Halves, Copies<TN, TK, TURNS>>::Type cb(b, j0, n);
  #pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    ca.start(sa[i], a, k - i * TK); cb.start(sb[i], b, k - i * TK);
    commit();
  }
  bool whole = i0 + TM <= m && j0 + TN <= n && (ldd & 3) == 0 && (mode != ADD_LOWER || j0 + TN - 1 <= i0);
  int now = 0, next = STAGES - 1;
  for (int p = 0; p < k; p += TK) {
    wait<STAGES - 2>();
    cb.widen(sb[now]);
    __syncthreads();
    ca.start(sa[next], a, k - p - (STAGES - 1) * TK); cb.start(sb[next], b, k - p - (STAGES - 1) * TK);
    commit();
    if (++next == STAGES) next = 0;
    if (k - p >= TK) {
      float4 x[2][R], y[2][2];
      #pragma unroll
      for (int i = 0; i < R; i++) x[0][i] = sa[now][0][row + i * 4];
      #pragma unroll
      for (int j = 0; j < 2; j++) y[0][j] = sb[now][0][column + j * 8];
      #pragma unroll
      for (int q = 0; q < TK; q++) {
        if (q + 1 < TK) {
          #pragma unroll
          for (int i = 0; i < R; i++) x[(q + 1) % 2][i] = sa[now][q + 1][row + i * 4];
          #pragma unroll
          for (int j = 0; j < 2; j++) y[(q + 1) % 2][j] = sb[now][q + 1][column + j * 8];
        }
        #pragma unroll
        for (int i = 0; i < R; i++)
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            float4 u = x[q % 2][i], v = y[q % 2][j];
            fma4(&s[4 * i][4 * j], u.x, v); fma4(&s[4 * i + 1][4 * j], u.y, v);
            fma4(&s[4 * i + 2][4 * j], u.z, v); fma4(&s[4 * i + 3][4 * j], u.w, v);
          }
      }
    } else for (int q = 0; q < k - p; q++)
      #pragma unroll
      for (int i = 0; i < R; i++)
        #pragma unroll
        for (int j = 0; j < 2; j++) {
          float4 u = sa[now][q][row + i * 4], v = sb[now][q][column + j * 8];
          fma4(&s[4 * i][4 * j], u.x, v); fma4(&s[4 * i + 1][4 * j], u.y, v);
          fma4(&s[4 * i + 2][4 * j], u.z, v); fma4(&s[4 * i + 3][4 * j], u.w, v);
        }
    if (++now == STAGES) now = 0;
    if ((p + TK) % SEGMENT != 0 && p + TK < k) continue;
    // The segment ends: its sum joins the result, which is in memory. What is there is read before anything is written, because
    // the compiler cannot know that the elements are not the same.
    bool first = p < SEGMENT && mode == WRITE;
    if (TURNS && turn.segment > 0) {
      first = false;
      if (threadIdx.x == 0) while (*turn.next != turn.segment);
      __threadfence();
      __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < R; i++) {
      int gi = i0 + (row + i * 4) * 4, gj = j0 + column * 4;
      if (whole) {
        float* d = dst + (size_t)gi * ldd + gj;
        float4 before[4][2];
        if (!first) {
          #pragma unroll
          for (int u = 0; u < 4; u++)
            #pragma unroll
            for (int j = 0; j < 2; j++) {
              const float4* at = (const float4*)(d + (size_t)u * ldd + j * 32);
              before[u][j] = TURNS ? __ldcg(at) : *at; // of another block
            }
        }
        #pragma unroll
        for (int u = 0; u < 4; u++)
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            float* v = &s[4 * i + u][4 * j];
            if (!first) {
              float4 w = before[u][j];
              v[0] = __fadd_rn(w.x, v[0]); v[1] = __fadd_rn(w.y, v[1]); v[2] = __fadd_rn(w.z, v[2]); v[3] = __fadd_rn(w.w, v[3]);
            }
            if (TURNS && turn.bias)
              for (int c = 0; c < 4; c++) v[c] = __fadd_rn(v[c], turn.bias[gj + j * 32 + c]);
            *(float4*)(d + (size_t)u * ldd + j * 32) = make_float4(v[0], v[1], v[2], v[3]);
          }
      } else {
        #pragma unroll
        for (int u = 0; u < 4; u++) {
          float* d = dst + (size_t)(gi + u) * ldd + gj;
          float before[8];
          bool in[8];
          #pragma unroll
          for (int j = 0; j < 8; j++) {
            int c = j / 4 * 32 + j % 4;
            in[j] = gi + u < m && gj + c < n && (mode != ADD_LOWER || gj + c <= gi + u);
            before[j] = !in[j] || first ? 0.f : TURNS ? __ldcg(d + c) : d[c];
          }
          #pragma unroll
          for (int j = 0; j < 8; j++) {
            int c = j / 4 * 32 + j % 4;
            float v = first ? s[4 * i + u][j] : __fadd_rn(before[j], s[4 * i + u][j]);
            if (in[j]) d[c] = TURNS && turn.bias ? __fadd_rn(v, turn.bias[gj + c]) : v;
          }
        }
      }
      #pragma unroll
      for (int u = 0; u < 4; u++)
        #pragma unroll
        for (int j = 0; j < 8; j++) s[4 * i + u][j] = 0.f;
    }
    if (TURNS) {
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) *turn.next = turn.segment + 1 == turn.segments ? 0 : turn.segment + 1;
    }
  }
}

#define ARGUMENTS float *dst, Factor a, Factor b, int m, int n, int k, int ldd, int mode, int reach
#define PRODUCT(R, TK, STAGES) \
  __shared__ float4 memory[STAGES * TK * (64 * R + TN) / 4]; \
  multiply<R, TK, STAGES, false, false>(memory, dst, a, b, m, n, k, ldd, mode, reach, blockIdx.y * 64 * R, blockIdx.x * TN, Turn())
extern "C" __global__ void __launch_bounds__(THREADS, 2) product128(ARGUMENTS) { PRODUCT(2, 16, 3); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) product256(ARGUMENTS) { PRODUCT(4, 8, 4); }

// Layers are up to three matrices that the same rows are multiplied by, and biases or nulls. Few rows have fewer tiles than a card has room for, so a
// block computes a segment of a tile. Blocks take their turns from a counter, so that those that others wait for have begun before.
struct Layers {
  Factor a;
  struct { Factor b; float* dst; const float* bias; unsigned n, tiles; } of[3]; // tiles until the last one of this matrix
  int m, k;
  unsigned* turns; // the counter, and of every tile the segment that is added next; all 0 before and afterwards
};
template <int R, bool HALVES> __device__ __forceinline__ void layer(const Layers& l) {
  __shared__ float4 memory[3 * 16 * (64 * R + TN) / 4];
  unsigned tiles = l.of[2].tiles, segments = (l.k + SEGMENT - 1) / SEGMENT, *ticket = (unsigned*)memory;
  if (threadIdx.x == 0) {
    *ticket = atomicAdd(l.turns, 1u);
    if (*ticket == tiles * segments - 1) *l.turns = 0;
  }
  __syncthreads();
  unsigned segment = *ticket / tiles, tile = *ticket % tiles, at = tile;
  __syncthreads();
  int down = (l.m + 64 * R - 1) / (64 * R), left = l.k - segment * SEGMENT;
  auto of = l.of[0];
  if (tile >= l.of[0].tiles) { of = l.of[1]; at = tile - l.of[0].tiles; }
  if (tile >= l.of[1].tiles) { of = l.of[2]; at = tile - l.of[1].tiles; }
  Turn turn = {l.turns + 1 + tile, segment, segments, left <= SEGMENT ? of.bias : nullptr};
  multiply<R, 16, 3, true, HALVES>(memory, of.dst, from(l.a, segment * SEGMENT), from(of.b, segment * SEGMENT), l.m, of.n, left < SEGMENT ? left : SEGMENT,
                                   of.n, WRITE, ALL, at % down * 64 * R, at / down * TN, turn);
}
extern "C" __global__ void __launch_bounds__(THREADS, 3) layers64(Layers l) { layer<1, false>(l); }
extern "C" __global__ void __launch_bounds__(THREADS, 2) layers128(Layers l) { layer<2, false>(l); }
extern "C" __global__ void __launch_bounds__(THREADS, 3) halves64(Layers l) { layer<1, true>(l); }
extern "C" __global__ void __launch_bounds__(THREADS, 2) halves128(Layers l) { layer<2, true>(l); }

// pack makes panels of `rows` rows [rows][k], the last one filled up with zeros. A block takes 32 rows and positions.
extern "C" __global__ void __launch_bounds__(THREADS) pack(float* dst, const float* src, int rows, int k) {
  __shared__ float s[PANEL][PANEL + 1];
  int x = threadIdx.x % 32, i0 = blockIdx.y * PANEL, p0 = blockIdx.x * 32;
  for (int y = threadIdx.x / 32; y < PANEL; y += THREADS / 32)
    s[y][x] = i0 + y < rows && p0 + x < k ? src[(size_t)(i0 + y) * k + p0 + x] : 0.f;
  __syncthreads();
  for (int y = threadIdx.x / 32; y < 32 && p0 + y < k; y += THREADS / 32) dst[((size_t)blockIdx.y * k + p0 + y) * PANEL + x] = s[x][y];
}

// sum adds n elements of x to dst.
extern "C" __global__ void __launch_bounds__(THREADS) sum(float* dst, const float* x, unsigned long long n) {
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (i < n) dst[i] = __fadd_rn(dst[i], x[i]);
}
