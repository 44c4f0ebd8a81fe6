// A token of every window on its way through the layers of a model: what lies between products, and products of few rows. The arithmetic is
// that of runtime/kernel: float64 where it is there, sums in the same lanes.

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

// rotates turns the first `turned` elements of every head by halves.
extern "C" __global__ void __launch_bounds__(THREADS) rotates(float* x, const float* cosine, const float* sine, int heads, int dim, int turned) {
  int half = turned / 2, i = blockIdx.x * THREADS + threadIdx.x, h = i / half, j = i % half;
  if (h >= heads) return;
  float *at = x + (size_t)h * dim + j, a = at[0], b = at[half];
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
