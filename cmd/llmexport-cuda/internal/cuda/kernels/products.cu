// Products of float32 matrices in the order of sums of runtime/kernel: segments of 256 positions, each a chain of fused
// multiply-adds from +0 in ascending order, segments added in ascending order. Every element has its own chain in the registers of
// one thread, so its bits depend neither on the tile nor on the grid nor on the card.

#define TM 128  // rows of a tile
#define TN 128  // columns of a tile
#define TK 8    // positions that are in shared memory at a time; divides SEGMENT
#define SEGMENT 256
#define PANEL 32

// How a factor lies in memory: element (row r, position p) at r*ld + p; at p*ld + r; or in panels of 32 rows of ld positions,
// [panels][ld][32], the last one filled up with zeros.
enum { BY_ROW, BY_POSITION, PACKED };

// What becomes of a sum: it is written; every segment of it is added to the result; the same in the lower triangle alone.
enum { WRITE, ADD, ADD_LOWER };

// Fetch brings the four elements of one thread, of TK positions from p on and 128 rows from i0 on, into registers. Elements outside
// the matrix are 0; no sum that is kept takes them.
template <int L> __device__ __forceinline__ float4 fetch(const float* f, int ld, int i0, int p, int rows, int k) {
  int t = threadIdx.x;
  float x[4] = {0.f, 0.f, 0.f, 0.f};
  if (L == BY_ROW) { // four positions of a row
    int r = i0 + t / 2, q = p + t % 2 * 4;
    if (r >= rows) return make_float4(0.f, 0.f, 0.f, 0.f);
    const float* at = f + (size_t)r * ld + q;
    if (q + 3 < k && (ld & 3) == 0) return *(const float4*)at;
    #pragma unroll
    for (int i = 0; i < 4; i++) if (q + i < k) x[i] = at[i];
  } else { // four rows of a position
    int r = i0 + t % 32 * 4, q = p + t / 32;
    if (r >= rows || q >= k) return make_float4(0.f, 0.f, 0.f, 0.f);
    if (L == PACKED) return *(const float4*)(f + (size_t)(r / PANEL) * PANEL * ld + (size_t)q * PANEL + r % PANEL);
    const float* at = f + (size_t)q * ld + r;
    if (r + 3 < rows && (ld & 3) == 0) return *(const float4*)at;
    #pragma unroll
    for (int i = 0; i < 4; i++) if (r + i < rows) x[i] = at[i];
  }
  return make_float4(x[0], x[1], x[2], x[3]);
}

template <int L> __device__ __forceinline__ void keep(float (*s)[TM + 4], float4 v) {
  int t = threadIdx.x;
  if (L == BY_ROW) {
    int r = t / 2, q = t % 2 * 4;
    s[q][r] = v.x; s[q + 1][r] = v.y; s[q + 2][r] = v.z; s[q + 3][r] = v.w;
  } else {
    *(float4*)&s[t / 32][t % 32 * 4] = v;
  }
}

template <int LA, int LB> __device__ __forceinline__ void product(float* dst, const float* a, const float* b, int m, int n, int k, int ldd, int lda, int ldb, int mode) {
  __shared__ __align__(16) float sa[2][TK][TM + 4];
  __shared__ __align__(16) float sb[2][TK][TN + 4];
  int t = threadIdx.x, tx = t % 16, ty = t / 16, i0 = blockIdx.y * TM, j0 = blockIdx.x * TN;
  if (mode == ADD_LOWER && j0 > i0 + TM - 1) return;
  float s[8][8];
  #pragma unroll
  for (int i = 0; i < 8; i++)
    #pragma unroll
    for (int j = 0; j < 8; j++) s[i][j] = 0.f;
  float4 fa = fetch<LA>(a, lda, i0, 0, m, k), fb = fetch<LB>(b, ldb, j0, 0, n, k);
  keep<LA>(sa[0], fa); keep<LB>(sb[0], fb);
  __syncthreads();
  int w = 0;
  for (int p = 0; p < k; p += TK) {
    bool more = p + TK < k;
    if (more) { fa = fetch<LA>(a, lda, i0, p + TK, m, k); fb = fetch<LB>(b, ldb, j0, p + TK, n, k); }
    int lim = k - p < TK ? k - p : TK;
    if (lim == TK) {
      #pragma unroll
      for (int q = 0; q < TK; q++) {
        float x[8], y[8];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          x[i] = sa[w][q][ty * 4 + i]; x[i + 4] = sa[w][q][64 + ty * 4 + i];
          y[i] = sb[w][q][tx * 4 + i]; y[i + 4] = sb[w][q][64 + tx * 4 + i];
        }
        #pragma unroll
        for (int i = 0; i < 8; i++)
          #pragma unroll
          for (int j = 0; j < 8; j++) s[i][j] = __fmaf_rn(x[i], y[j], s[i][j]);
      }
    } else for (int q = 0; q < lim; q++)
      #pragma unroll
      for (int i = 0; i < 8; i++)
        #pragma unroll
        for (int j = 0; j < 8; j++)
          s[i][j] = __fmaf_rn(sa[w][q][(i & 4) * 16 + ty * 4 + (i & 3)], sb[w][q][(j & 4) * 16 + tx * 4 + (j & 3)], s[i][j]);
    if (more) { keep<LA>(sa[w ^ 1], fa); keep<LB>(sb[w ^ 1], fb); }
    int e = p + TK;
    if (e % SEGMENT == 0 || e >= k) { // the segment ends: its sum joins the result, which is in memory
      bool first = p < SEGMENT && mode == WRITE;
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        int gi = i0 + (i & 4) * 16 + ty * 4 + (i & 3);
        #pragma unroll
        for (int j = 0; j < 8; j++) {
          int gj = j0 + (j & 4) * 16 + tx * 4 + (j & 3);
          if (gi < m && gj < n && (mode != ADD_LOWER || gj <= gi)) {
            float* d = dst + (size_t)gi * ldd + gj;
            *d = first ? s[i][j] : __fadd_rn(*d, s[i][j]);
          }
          s[i][j] = 0.f;
        }
      }
    }
    __syncthreads();
    w ^= 1;
  }
}

#define ARGUMENTS float *dst, const float *a, const float *b, int m, int n, int k, int ldd, int lda, int ldb, int mode
#define PASSED dst, a, b, m, n, k, ldd, lda, ldb, mode
extern "C" __global__ void __launch_bounds__(256) rows_packed(ARGUMENTS) { product<BY_ROW, PACKED>(PASSED); }
extern "C" __global__ void __launch_bounds__(256) rows_positions(ARGUMENTS) { product<BY_ROW, BY_POSITION>(PASSED); }
extern "C" __global__ void __launch_bounds__(256) positions_positions(ARGUMENTS) { product<BY_POSITION, BY_POSITION>(PASSED); }

// sum adds n elements of x to dst.
extern "C" __global__ void __launch_bounds__(256) sum(float* dst, const float* x, unsigned long long n) {
  size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;
  if (i < n) dst[i] = __fadd_rn(dst[i], x[i]);
}
