// Tokens on their way through the layers of a model, one of every window or all of some windows: what lies between products, and products of
// few rows. The arithmetic is that of runtime/kernel: float64 where it is there, sums in the same lanes.

#define POSITIONS 4096 // positions that sums of attention may have
#define ELEMENTS 256   // elements of a key or a value of a head

// exact is the exponential of runtime/kernel (softmax_exp.go).
__device__ __forceinline__ double scaled(double y, int k) { // by 2^k
  if (k > 1023) return y * 2 * 8.98846567431158e307; // 2^1023
  if (k < -1021) return y * __longlong_as_double((long long)(k + 64 + 1023) << 52) * 5.421010862427522e-20; // 2^-64
  return y * __longlong_as_double((long long)(k + 1023) << 52);
}
__device__ __forceinline__ double exact(double x) {
  if (x != x) return x;
  if (x > 709.782712893384) return __longlong_as_double(0x7ffll << 52);
  if (x < -745.1332191019412) return 0;
  const double terms[12] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                            1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2};
  double k = floor(x * 1.4426950408889634 + 0.5);
  double hi = x - k * 6.93147180369123816490e-01, lo = k * 1.90821492927058770002e-10; // ln 2 in two parts
  double r = hi - lo, c = hi - r - lo, z = r * r;
  double odd = terms[0], even = terms[1];
  #pragma unroll
  for (int i = 2; i < 12; i += 2) { odd = odd * z + terms[i]; even = even * z + terms[i + 1]; }
  double p = even + r * odd;
  return scaled(1 + (r + (z * p + c)), (int)k);
}

// lanes adds eight partial sums.
__device__ __forceinline__ double lanes(const double* s) { return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])); }

// norms divides runs of `width` elements by the root of the mean of their squares, and multiplies by gamma. A warp takes a run.
extern "C" __global__ void __launch_bounds__(THREADS) norms(float* dst, const float* src, const float* gamma, int runs, int width, float eps) {
  __shared__ double sums[THREADS / 32][8];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, run = blockIdx.x * (THREADS / 32) + warp;
  const float* x = src + (size_t)run * width;
  if (run < runs && lane < 8) {
    double s = 0;
    #pragma unroll 8
    for (int i = lane; i < width; i += 8) { double v = x[i]; s += v * v; }
    sums[warp][lane] = s;
  }
  __syncthreads();
  if (run >= runs) return;
  double scale = 1 / sqrt(lanes(sums[warp]) / width + (double)eps);
  for (int i = lane; i < width; i += 32) dst[(size_t)run * width + i] = (float)((double)x[i] * scale * (double)gamma[i]);
}

// thin multiplies m rows of x [m][k] by the n rows of b, panels, and adds bias [n] or 0. A block takes 32 rows of either, and four segments
// at a time: 64 threads one of them, a thread 4 x 4 elements of it.
#define THIN 16 // positions in shared memory
extern "C" __global__ void __launch_bounds__(THREADS) thin(float* dst, const float* x, Factor b, const float* bias, int m, int n, int k) {
  __shared__ float sa[4][THIN][PANEL + 4];
  __shared__ float sb[4][THIN][PANEL];
  __shared__ float sums[4][PANEL * PANEL];
  int t = threadIdx.x, g = t / 64, u = t % 64, row = blockIdx.x * PANEL, column = blockIdx.y * PANEL;
  int ay = u / 16, ap = u % 16, ty = u / 8 * 4, tx = u % 8 * 4;
  const float* panel = b.at + (size_t)blockIdx.y * b.panel;
  float total[4] = {0, 0, 0, 0};
  for (int first = 0; first < k; first += 4 * SEGMENT) {
    int base = first + g * SEGMENT, left = k - base, whole = k - first;
    if (left > SEGMENT) left = SEGMENT;
    if (whole > SEGMENT) whole = SEGMENT;
    float s[4][4];
    #pragma unroll
    for (int i = 0; i < 4; i++)
      #pragma unroll
      for (int j = 0; j < 4; j++) s[i][j] = 0.f;
    float a[8], y[8];
    auto load = [&](int p0) {
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        int r = row + ay + 4 * i, p = p0 + ap;
        a[i] = r < m && p < left ? x[(size_t)r * k + base + p] : 0.f;
        int e = u + 64 * i; // of 16 positions of a panel
        y[i] = p0 + e / PANEL < left ? panel[(size_t)(base + p0) * PANEL + e] : 0.f;
      }
    };
    load(0);
    for (int p0 = 0; p0 < whole; p0 += THIN) {
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        sa[g][ap][ay + 4 * i] = a[i];
        sb[g][(u + 64 * i) / PANEL][u % PANEL] = y[i];
      }
      __syncthreads();
      if (p0 + THIN < whole) load(p0 + THIN);
      auto step = [&](int q) {
        float v[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) v[i] = sa[g][q][ty + i];
        float4 w = *(const float4*)&sb[g][q][tx];
        #pragma unroll
        for (int i = 0; i < 4; i++) fma4(s[i], v[i], w);
      };
      if (p0 + THIN <= left) {
        #pragma unroll
        for (int q = 0; q < THIN; q++) step(q);
      } else for (int q = 0; q < left - p0; q++) step(q);
      __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < 4; i++)
      #pragma unroll
      for (int j = 0; j < 4; j++) sums[g][(ty + i) * PANEL + tx + j] = s[i][j];
    __syncthreads();
    for (int i = 0; i < 4; i++)
      for (int h = 0; h < 4 && first + h * SEGMENT < k; h++) {
        float v = sums[h][t + THREADS * i];
        total[i] = first + h == 0 ? v : __fadd_rn(total[i], v);
      }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++) {
    int e = t + THREADS * i, r = row + e / PANEL, c = column + e % PANEL;
    if (r < m && c < n) dst[(size_t)r * n + c] = bias ? __fadd_rn(total[i], bias[c]) : total[i];
  }
}

// rotates turns the first `turned` elements of every head by halves. `of` rows of heads are at the places of whole windows, unless that is null.
extern "C" __global__ void __launch_bounds__(THREADS)
rotates(float* x, const float* cosine, const float* sine, int heads, int dim, int turned, int of, const int* places) {
  int half = turned / 2, i = blockIdx.x * THREADS + threadIdx.x, h = i / half, j = i % half;
  if (h >= heads) return;
  if (places) j += places[h / of] * turned;
  float *at = x + (size_t)h * dim + i % half, a = at[0], b = at[half];
  at[0] = __fadd_rn(a * cosine[j], -(b * sine[j]));
  at[half] = __fadd_rn(b * cosine[half + j], a * sine[half + j]);
}

// Attend is one attention of all windows: panels of the keys of a head are [longest/32][key][32], of its values [value/32][longest][32].
struct Attend {
  float *out, *keys, *values;
  const float *q, *k, *v;
  int rows, heads, shared, key, value, longest, from, first, at;
  float scale;
};

// keeps stores the keys and values of the present tokens.
extern "C" __global__ void __launch_bounds__(THREADS) keeps(Attend a) {
  int kv = a.heads / a.shared, wide = a.key + a.value, i = blockIdx.x * THREADS + threadIdx.x, h = i / wide, d = i % wide;
  if (h >= a.rows * kv) return;
  size_t key = (size_t)((a.longest + PANEL - 1) / PANEL) * PANEL * a.key, value = (size_t)((a.value + PANEL - 1) / PANEL) * PANEL * a.longest;
  if (d < a.key) a.keys[h * key + (size_t)(a.at / PANEL) * PANEL * a.key + d * PANEL + a.at % PANEL] = a.k[(size_t)h * a.key + d];
  else {
    d -= a.key;
    a.values[h * value + (size_t)(d / PANEL) * PANEL * a.longest + a.at * PANEL + d % PANEL] = a.v[(size_t)h * a.value + d];
  }
}

// attends computes the attention of the present token of a window for one head: a block.
extern "C" __global__ void __launch_bounds__(THREADS) attends(Attend a) {
  __shared__ float query[ELEMENTS], score[POSITIONS], part[POSITIONS / SEGMENT][ELEMENTS];
  __shared__ float tops[THREADS];
  __shared__ double sums[8];
  int t = threadIdx.x, head = blockIdx.x, window = blockIdx.y, kv = a.heads / a.shared, n = a.at + 1 - a.from, hidden = a.first - a.from;
  size_t of = (size_t)window * kv + head / a.shared;
  const float* keys = a.keys + of * ((a.longest + PANEL - 1) / PANEL) * PANEL * a.key;
  const float* values = a.values + of * ((a.value + PANEL - 1) / PANEL) * PANEL * a.longest;
  for (int d = t; d < a.key; d += THREADS) query[d] = a.q[((size_t)window * a.heads + head) * a.key + d] * a.scale;
  __syncthreads();
  float top = -__uint_as_float(0x7f800000);
  for (int j = t; j < n; j += THREADS) {
    const float* k = keys + (size_t)((a.from + j) / PANEL) * PANEL * a.key + (a.from + j) % PANEL;
    float s = 0.f;
    #pragma unroll 8
    for (int d = 0; d < a.key; d++) s = __fmaf_rn(query[d], k[d * PANEL], s);
    score[j] = j < hidden ? 0.f : s;
    if (j >= hidden && !(s <= top)) top = s; // what is not a number stays
  }
  tops[t] = top;
  __syncthreads();
  for (int step = THREADS / 2; step > 0; step /= 2) {
    if (t < step && !(tops[t + step] <= tops[t])) tops[t] = tops[t + step];
    __syncthreads();
  }
  double most = tops[0];
  for (int j = hidden + t; j < n; j += THREADS) {
    double d = (double)score[j] - most;
    score[j] = d < -700 ? 0.f : (float)exact(d);
  }
  __syncthreads();
  if (t < 8) {
    double s = 0;
    #pragma unroll 8
    for (int j = hidden + t; j < n; j += 8) s += (double)score[j];
    sums[t] = s;
  }
  __syncthreads();
  double scale = 1 / lanes(sums);
  for (int j = hidden + t; j < n; j += THREADS) score[j] = (float)((double)score[j] * scale);
  __syncthreads();
  int groups = THREADS / a.value, g = t / a.value, d = t % a.value, segments = (n + SEGMENT - 1) / SEGMENT;
  for (int i = g; g < groups && i < segments; i += groups) {
    const float* v = values + (size_t)(d / PANEL) * PANEL * a.longest + (size_t)a.from * PANEL + d % PANEL;
    int end = (i + 1) * SEGMENT < n ? (i + 1) * SEGMENT : n;
    float s = 0.f;
    #pragma unroll 8
    for (int j = i * SEGMENT; j < end; j++) s = __fmaf_rn(score[j], v[(size_t)j * PANEL], s);
    part[i][d] = s;
  }
  __syncthreads();
  if (t < a.value) {
    float s = part[0][t];
    for (int i = 1; i < segments; i++) s = __fadd_rn(s, part[i][t]);
    a.out[((size_t)window * a.heads + head) * a.value + t] = s;
  }
}

// gates multiplies x/(1 + exp(-x)) by other factors.
extern "C" __global__ void __launch_bounds__(THREADS) gates(float* x, const float* by, unsigned long long n) {
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  double v = x[i];
  x[i] = (float)(v / (1 + exact(-v))) * by[i];
}

// Whole is the attention of all tokens of windows to those before them. Sums of a query have the positions from from[i] on, until the last of
// the `together` queries that begin at a multiple of that; it attends to those from first[i] on.
struct Whole {
  float* out;
  const float *q, *k, *v;
  const int *starts, *lengths, *from, *first;
  int heads, shared, key, value, together, line; // floats of a row of scores
  float scale;
};

#define KEYS 64  // keys of a tile
#define DEEP 32  // elements of queries and keys, or positions of values, in shared memory
#define WIDE 128 // columns of values of a tile

// wholes computes it for 32 queries of a head: a block. Scores are in the memory that the launch adds.
extern "C" __global__ void __launch_bounds__(THREADS) wholes(Whole a) {
  __shared__ float4 tile[DEEP * WIDE / 4];
  __shared__ double sums[ROWS][8];
  float* scores = (float*)added();
  float (*sq)[ROWS + 4] = (float(*)[ROWS + 4])tile;                        // [DEEP][queries]
  float (*sk)[KEYS + 4] = (float(*)[KEYS + 4])((float*)tile + DEEP * (ROWS + 4)); // [DEEP][keys]
  int t = threadIdx.x, warp = t / 32, lane = t % 32, head = blockIdx.x % a.heads, i0 = blockIdx.x / a.heads * ROWS;
  int length = a.lengths[blockIdx.y], kv = a.heads / a.shared, own = head / a.shared;
  if (i0 >= length) return;
  size_t start = a.starts[blockIdx.y];
  int from = a.from[i0], to = (i0 / a.together + 1) * a.together;
  if (to > length) to = length;
  int n = to - from, rows = length - i0 < ROWS ? length - i0 : ROWS;
  const float *q = a.q + ((start + i0) * a.heads + head) * a.key, *k = a.k + ((start + from) * kv + own) * a.key;
  const float* v = a.v + ((start + from) * kv + own) * a.value;
  // Scores: a thread has two queries and four keys of a tile.
  int ty = t / 16 * 2, tx = t % 16 * 4;
  for (int j0 = 0; j0 < n; j0 += KEYS) {
    float s[2][4] = {{0.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 0.f}};
    for (int d0 = 0; d0 < a.key; d0 += DEEP) {
      int deep = a.key - d0 < DEEP ? a.key - d0 : DEEP;
      #pragma unroll
      for (int e = t; e < DEEP * (ROWS + KEYS); e += THREADS) {
        int r = e / DEEP, d = e % DEEP;
        if (r < ROWS) sq[d][r] = r < rows && d < deep ? q[(size_t)r * a.heads * a.key + d0 + d] * a.scale : 0.f;
        else {
          r -= ROWS;
          sk[d][r] = j0 + r < n && d < deep ? k[(size_t)(j0 + r) * kv * a.key + d0 + d] : 0.f;
        }
      }
      __syncthreads();
      #pragma unroll 8
      for (int d = 0; d < deep; d++) {
        float4 y = *(const float4*)&sk[d][tx];
        fma4(s[0], sq[d][ty], y);
        fma4(s[1], sq[d][ty + 1], y);
      }
      __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < 2; i++)
      #pragma unroll
      for (int j = 0; j < 4; j++)
        if (j0 + tx + j < n) scores[(ty + i) * a.line + j0 + tx + j] = s[i][j];
  }
  __syncthreads();
  // Weights: a warp has four queries.
  for (int r = 4 * warp; r < 4 * warp + 4 && r < rows; r++) {
    float* row = scores + r * a.line;
    int first = a.first[i0 + r] - from, end = i0 + r + 1 - from;
    float top = -__uint_as_float(0x7f800000);
    for (int j = first + lane; j < end; j += 32) if (!(row[j] <= top)) top = row[j]; // what is not a number stays
    #pragma unroll
    for (int b = 16; b > 0; b /= 2) {
      float other = (float)__shfl_xor_sync(~0u, (double)top, b);
      if (!(other <= top)) top = other;
    }
    for (int j = lane; j < n; j += 32) {
      double d = (double)row[j] - (double)top;
      row[j] = j < first || j >= end || d < -700 ? 0.f : (float)exact(d);
    }
  }
  __syncthreads();
  int r = t / 8, l = t % 8;
  if (r < rows) {
    const float* row = scores + r * a.line;
    double s = 0;
    #pragma unroll 8
    for (int j = a.first[i0 + r] - from + l; j < i0 + r + 1 - from; j += 8) s += (double)row[j];
    sums[r][l] = s;
  }
  __syncthreads();
  for (int r = 4 * warp; r < 4 * warp + 4 && r < rows; r++) {
    double scale = 1 / lanes(sums[r]);
    for (int j = a.first[i0 + r] - from + lane; j < i0 + r + 1 - from; j += 32) scores[r * a.line + j] = (float)((double)scores[r * a.line + j] * scale);
  }
  __syncthreads();
  // Values: a thread has four queries and four columns of a tile.
  float* sv = (float*)tile;
  for (int c0 = 0; c0 < a.value; c0 += WIDE) {
    int wide = a.value - c0 < WIDE ? a.value - c0 : WIDE;
    float total[4][4], s[4][4];
    for (int j0 = 0; j0 < n; j0 += DEEP) {
      int deep = n - j0 < DEEP ? n - j0 : DEEP;
      #pragma unroll
      for (int e = t; e < DEEP * WIDE; e += THREADS) {
        int j = e / WIDE, c = e % WIDE;
        sv[e] = j < deep && c < wide ? v[(size_t)(j0 + j) * kv * a.value + c0 + c] : 0.f;
      }
      __syncthreads();
      if (j0 % SEGMENT == 0)
        #pragma unroll
        for (int i = 0; i < 4; i++)
          #pragma unroll
          for (int c = 0; c < 4; c++) s[i][c] = 0.f;
      for (int j = 0; j < deep; j++) {
        float4 y = *(const float4*)(sv + j * WIDE + 4 * lane);
        #pragma unroll
        for (int i = 0; i < 4; i++) fma4(s[i], scores[(4 * warp + i) * a.line + j0 + j], y);
      }
      if (j0 % SEGMENT == SEGMENT - DEEP || j0 + DEEP >= n)
        #pragma unroll
        for (int i = 0; i < 4; i++)
          #pragma unroll
          for (int c = 0; c < 4; c++) total[i][c] = j0 < SEGMENT ? s[i][c] : __fadd_rn(total[i][c], s[i][c]);
      __syncthreads();
    }
    for (int i = 0; i < 4; i++)
      for (int c = 0; c < 4; c++)
        if (4 * warp + i < rows && 4 * lane + c < wide)
          a.out[((start + i0 + 4 * warp + i) * a.heads + head) * a.value + c0 + 4 * lane + c] = total[i][c];
  }
}
