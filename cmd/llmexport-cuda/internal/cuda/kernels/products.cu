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
// added is the shared memory that a launch adds.
__device__ __forceinline__ float4* added() {
  extern __shared__ float4 memory[];
  return memory;
}
#endif

// Factor is a matrix whose element (row r, position p) is at r/32*panel + p*step + r%32: panels of 32 rows [panels][k][32], with
// panel 32*k and step 32, or rows that lie together [k][ld], with panel 32 and step ld, a multiple of 4.
struct Factor {
  const float* at;
  long long panel, step;
};

// Copies are those of one thread, of TK positions of ROWS rows to shared memory. Rows outside the matrix are not copied; no sum
// that is kept takes them.
template <int ROWS, int TK> struct Copies {
  static const int PANELS = THREADS / (8 * TK); // that all threads copy at a time
  const float* from;
  int r, q, rows; // the rows from r on
  __device__ __forceinline__ Copies(Factor f, int first, int m) {
    int t = threadIdx.x, panel = t / (8 * TK);
    q = t / 8 % TK;
    r = panel * PANEL + t % 8 * 4;
    rows = m - first - r;
    from = f.at + (first / PANEL + panel) * f.panel + q * f.step + t % 8 * 4;
  }
  // start copies those of the first `left` of the next positions.
  __device__ __forceinline__ void start(float4 (*to)[ROWS / 4], Factor f, int left) {
    #pragma unroll
    for (int i = 0; i < ROWS / PANEL / PANELS; i++)
      if (i * PANELS * PANEL < rows && q < left) copy16(&to[q][r / 4 + i * PANELS * 8], from + i * PANELS * f.panel);
    from += TK * f.step;
  }
};

__device__ __forceinline__ void fma4(float* s, float x, float4 y) {
  s[0] = __fmaf_rn(x, y.x, s[0]); s[1] = __fmaf_rn(x, y.y, s[1]); s[2] = __fmaf_rn(x, y.z, s[2]); s[3] = __fmaf_rn(x, y.w, s[3]);
}

// A block computes a tile of 64*R rows and 128 columns, a thread 4*R rows and 8 columns of it; shared memory has STAGES times TK
// positions. The threads of a warp are 4 x 8, such that neighbours read the same words of shared memory.
template <int R, int TK, int STAGES>
__device__ __forceinline__ void multiply(float* dst, Factor a, Factor b, int m, int n, int k, int ldd, int mode, int reach, int tile) {
  const int TM = 64 * R;
  __shared__ float4 sa[STAGES][TK][TM / 4];
  __shared__ float4 sb[STAGES][TK][TN / 4];
  int i0 = tile * TM, j0 = blockIdx.x * TN;
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
  Copies<TM, TK> ca(a, i0, m);
  Copies<TN, TK> cb(b, j0, n);
  #pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    ca.start(sa[i], a, k - i * TK); cb.start(sb[i], b, k - i * TK);
    commit();
  }
  bool whole = i0 + TM <= m && j0 + TN <= n && (ldd & 3) == 0 && (mode != ADD_LOWER || j0 + TN - 1 <= i0);
  int now = 0, next = STAGES - 1;
  for (int p = 0; p < k; p += TK) {
    wait<STAGES - 2>();
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
            for (int j = 0; j < 2; j++) before[u][j] = *(const float4*)(d + (size_t)u * ldd + j * 32);
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
            before[j] = in[j] && !first ? d[c] : 0.f;
          }
          #pragma unroll
          for (int j = 0; j < 8; j++) if (in[j]) d[j / 4 * 32 + j % 4] = first ? s[4 * i + u][j] : __fadd_rn(before[j], s[4 * i + u][j]);
        }
      }
      #pragma unroll
      for (int u = 0; u < 4; u++)
        #pragma unroll
        for (int j = 0; j < 8; j++) s[4 * i + u][j] = 0.f;
    }
  }
}

#define ARGUMENTS float *dst, Factor a, Factor b, int m, int n, int k, int ldd, int mode, int reach
extern "C" __global__ void __launch_bounds__(THREADS, 2) product128(ARGUMENTS) { multiply<2, 16, 3>(dst, a, b, m, n, k, ldd, mode, reach, blockIdx.y); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) product256(ARGUMENTS) { multiply<4, 8, 4>(dst, a, b, m, n, k, ldd, mode, reach, blockIdx.y); }

// parts computes the sums of every segment, [segments][m][n], for so few rows that their tiles alone would not keep a card busy. joins adds them,
// and a bias or nothing; a single one may be the result itself.
extern "C" __global__ void __launch_bounds__(THREADS, 2) parts(float* dst, Factor a, Factor b, int m, int n, int k) {
  int tiles = (m + 127) / 128, i = blockIdx.y / tiles, left = k - i * SEGMENT;
  a.at += i * SEGMENT * a.step;
  b.at += i * SEGMENT * b.step;
  multiply<2, 16, 3>(dst + (size_t)i * m * n, a, b, m, n, left < SEGMENT ? left : SEGMENT, n, WRITE, ALL, blockIdx.y % tiles);
}
extern "C" __global__ void __launch_bounds__(THREADS) joins(float* dst, const float* parts, const float* bias, unsigned long long count, int segments, int n) {
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  float s = parts[i];
  for (int j = 1; j < segments; j++) s = __fadd_rn(s, parts[j * count + i]);
  dst[i] = bias ? __fadd_rn(s, bias[i % n]) : s;
}

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
