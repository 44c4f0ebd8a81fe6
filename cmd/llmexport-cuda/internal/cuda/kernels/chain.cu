// Tokens on their way through the layers of a model, one of every window or all of some windows: what lies between products, and products of
// few rows. The arithmetic is that of runtime/kernel: float64 where it is there, sums in the same lanes.

#define ELEMENTS 256 // elements of a key or a value of a head

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

// norms divides runs of `width` elements by the root of the mean of their squares, and multiplies by gamma. A warp takes a run: eight threads add what
// all of them have brought to shared memory, while the next elements come.
extern "C" __global__ void __launch_bounds__(THREADS) norms(float* dst, const float* src, const float* gamma, int runs, int width, float eps) {
  __shared__ double sums[THREADS / 32][8];
  __shared__ float part[THREADS / 32][256];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, run = blockIdx.x * (THREADS / 32) + warp;
  const float* x = src + (size_t)run * width;
  float* own = part[warp];
  float next[8];
  auto load = [&](int base) {
    #pragma unroll
    for (int i = 0; i < 8; i++) next[i] = run < runs && base + i * 32 + lane < width ? x[base + i * 32 + lane] : 0.f;
  };
  double s = 0;
  load(0);
  for (int base = 0; base < width; base += 256) {
    #pragma unroll
    for (int i = 0; i < 8; i++) own[i * 32 + lane] = next[i];
    __syncwarp();
    load(base + 256);
    int end = width - base < 256 ? width - base : 256;
    if (lane < 8) {
      #pragma unroll 8
      for (int i = lane; i < end; i += 8) { double v = own[i]; s += v * v; }
    }
    __syncwarp();
  }
  if (lane < 8) sums[warp][lane] = s;
  __syncwarp();
  if (run >= runs) return;
  double scale = 1 / sqrt(lanes(sums[warp]) / width + (double)eps);
  #pragma unroll 4
  for (int i = lane; i < width; i += 32) dst[(size_t)run * width + i] = (float)((double)x[i] * scale * (double)gamma[i]);
}

// normBacks turns d, gradients of the results of norms, into those of what they read, x. A warp takes a run: four lanes the sum of squares, four
// the product of gradients with x. roots gets what x is multiplied by, unless it is null.
extern "C" __global__ void __launch_bounds__(THREADS)
normBacks(float* dst, const float* d, const float* x, const float* gamma, double* roots, int runs, int width, float eps) {
  __shared__ double sums[THREADS / 32][8];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, run = blockIdx.x * (THREADS / 32) + warp, whole = width & ~3;
  x += (size_t)run * width;
  d += (size_t)run * width;
  if (run < runs && lane < 8) {
    double s = 0;
    auto add = [&](int i) {
      double v = x[i];
      s += (lane < 4 ? v : (double)(gamma[i] * d[i])) * v;
    };
    #pragma unroll 8
    for (int i = lane % 4; i < whole; i += 4) add(i);
    if (lane % 4 == 0) for (int i = whole; i < width; i++) add(i);
    sums[warp][lane] = s;
  }
  __syncthreads();
  if (run >= runs) return;
  const double* s = sums[warp];
  double mean = (s[0] + s[1] + s[2] + s[3]) / width, dot = (s[4] + s[5] + s[6] + s[7]) / width, r = 1 / sqrt(mean + (double)eps), c = dot * r * r;
  if (roots && lane == 0) roots[run] = r;
  for (int i = lane; i < width; i += 32) dst[(size_t)run * width + i] = (float)(r * ((double)(gamma[i] * d[i]) - (double)x[i] * c));
}

// gammaBacks adds gradients of gamma over `span` runs: a block those of 256 elements.
extern "C" __global__ void __launch_bounds__(THREADS)
gammaBacks(double* sums, const float* d, const float* x, const double* roots, int runs, int width, int span) {
  int i = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * span, end = runs - first < span ? runs : first + span;
  if (i >= width) return;
  double s = 0;
  #pragma unroll 8
  for (int run = first; run < end; run++) s += (double)x[(size_t)run * width + i] * roots[run] * (double)d[(size_t)run * width + i];
  sums[(size_t)blockIdx.y * width + i] = s;
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

#define HEADS 4 // queries of a block at most

// Attend is one attention of all windows: panels of the keys of a head are [longest/32][key][32], of its values [value/32][longest][32].
struct Attend {
  float *out, *keys, *values;
  const float *q, *k, *v;
  int heads, shared, key, value, longest, from, first, at;
  int together, line; // heads of a block, and floats of a row of scores
  float scale;
};

// attends stores the key and the value of the present token of a window, and computes its attention for some heads that share them: a block. Scores
// and sums of segments are in the memory that the launch adds.
extern "C" __global__ void __launch_bounds__(THREADS) attends(Attend a) {
  __shared__ float4 query[ELEMENTS];
  __shared__ float tops[THREADS / 32][HEADS];
  __shared__ double sums[HEADS][8];
  float *score = (float*)added(), *part = score + a.together * a.line; // [heads][line], [segments][heads][value]
  int t = threadIdx.x, head = blockIdx.x * a.together, window = blockIdx.y, kv = a.heads / a.shared, n = a.at + 1 - a.from, hidden = a.first - a.from;
  size_t of = (size_t)window * kv + head / a.shared;
  float* keys = a.keys + of * ((a.longest + PANEL - 1) / PANEL) * PANEL * a.key;
  float* values = a.values + of * ((a.value + PANEL - 1) / PANEL) * PANEL * a.longest;
  for (int d = t; d < a.key; d += THREADS) {
    const float* q = a.q + ((size_t)window * a.heads + head) * a.key + d;
    float x[HEADS];
    #pragma unroll
    for (int h = 0; h < HEADS; h++) x[h] = h < a.together ? q[h * a.key] * a.scale : 0.f;
    query[d] = make_float4(x[0], x[1], x[2], x[3]);
    keys[(size_t)(a.at / PANEL) * PANEL * a.key + d * PANEL + a.at % PANEL] = a.k[of * a.key + d];
  }
  for (int d = t; d < a.value; d += THREADS) values[(size_t)(d / PANEL) * PANEL * a.longest + a.at * PANEL + d % PANEL] = a.v[of * a.value + d];
  __syncthreads();
  float top[HEADS];
  #pragma unroll
  for (int h = 0; h < HEADS; h++) top[h] = -__uint_as_float(0x7f800000);
  for (int j = t; j < n; j += THREADS) {
    const float* k = keys + (size_t)((a.from + j) / PANEL) * PANEL * a.key + (a.from + j) % PANEL;
    float s[HEADS] = {0.f, 0.f, 0.f, 0.f};
    #pragma unroll 16
    for (int d = 0; d < a.key; d++) fma4(s, k[d * PANEL], query[d]);
    #pragma unroll
    for (int h = 0; h < HEADS; h++) {
      if (h < a.together) score[h * a.line + j] = j < hidden ? 0.f : s[h];
      if (j >= hidden && !(s[h] <= top[h])) top[h] = s[h]; // what is not a number makes everything so
    }
  }
  #pragma unroll
  for (int h = 0; h < HEADS; h++) {
    #pragma unroll
    for (int b = 16; b > 0; b /= 2) {
      float other = (float)__shfl_xor_sync(~0u, (double)top[h], b);
      if (!(other <= top[h])) top[h] = other;
    }
    if (t % 32 == 0) tops[t / 32][h] = top[h];
  }
  __syncthreads();
  for (int h = 0; h < a.together; h++) {
    double most = tops[0][h];
    for (int w = 1; w < THREADS / 32; w++) if (!(tops[w][h] <= most)) most = tops[w][h];
    for (int j = hidden + t; j < n; j += THREADS) {
      double d = (double)score[h * a.line + j] - most;
      score[h * a.line + j] = d < -700 ? 0.f : (float)exact(d);
    }
  }
  __syncthreads();
  if (t < 8 * a.together) {
    double s = 0;
    #pragma unroll 8
    for (int j = hidden + t % 8; j < n; j += 8) s += (double)score[t / 8 * a.line + j];
    sums[t / 8][t % 8] = s;
  }
  __syncthreads();
  for (int h = 0; h < a.together; h++) {
    double scale = 1 / lanes(sums[h]);
    for (int j = hidden + t; j < n; j += THREADS) score[h * a.line + j] = (float)((double)score[h * a.line + j] * scale);
  }
  __syncthreads();
  // Values: groups of threads share the segments, and the heads where there are more groups than segments.
  int groups = THREADS / a.value, d = t % a.value, segments = (n + SEGMENT - 1) / SEGMENT;
  int splits = groups > segments ? groups / segments : 1, each = (a.together + splits - 1) / splits;
  for (int i = t / a.value; i < segments * splits && t < groups * a.value; i += groups) {
    int j = i / splits * SEGMENT, end = j + SEGMENT < n ? j + SEGMENT : n, lo = i % splits * each, count = a.together - lo < each ? a.together - lo : each;
    const float* v = values + (size_t)(d / PANEL) * PANEL * a.longest + (size_t)a.from * PANEL + d % PANEL;
    const float* row = score + lo * a.line;
    float s[HEADS] = {0.f, 0.f, 0.f, 0.f};
    #pragma unroll 8
    for (; j < end; j++) {
      float x = v[(size_t)j * PANEL];
      #pragma unroll
      for (int h = 0; h < HEADS; h++) if (h < count) s[h] = __fmaf_rn(row[h * a.line + j], x, s[h]);
    }
    #pragma unroll
    for (int h = 0; h < HEADS; h++) if (h < count) part[(i / splits * a.together + lo + h) * a.value + d] = s[h];
  }
  __syncthreads();
  for (int i = t; i < a.together * a.value; i += THREADS) {
    float s = part[i];
    for (int j = 1; j < segments; j++) s = __fadd_rn(s, part[j * a.together * a.value + i]);
    a.out[((size_t)window * a.heads + head) * a.value + i] = s;
  }
}

// silu is x/(1 + exp(-x)).
__device__ __forceinline__ float silu(float x) {
  double v = x;
  return (float)(v / (1 + exact(-v)));
}

// gates multiplies it by other factors.
extern "C" __global__ void __launch_bounds__(THREADS) gates(float* dst, const float* x, const float* by, unsigned long long n) {
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (i < n) dst[i] = silu(x[i]) * by[i];
}

// gateBacks turns both factors into their gradients, for d, that of the product.
extern "C" __global__ void __launch_bounds__(THREADS) gateBacks(float* x, float* by, const float* d, unsigned long long n) {
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  const float least = __uint_as_float((127 - 100) << 23); // 2^-100
  float v = x[i], y = silu(v), sigma = 0.5f;
  if (v > least || v < -least) sigma = y / v;
  float slope = __fadd_rn(sigma, y * (1 - sigma));
  x[i] = d[i] * by[i] * slope;
  by[i] = d[i] * y;
}

// Whole is the attention of all tokens of windows to those before them. Sums of a query have the positions from from[i] on, until the last of
// the `together` queries that begin at a multiple of that; it attends to those from first[i] on. Weights [rows][heads][longest] may be null.
struct Whole {
  float* out;
  const float *q, *k, *v;
  const int *starts, *lengths, *from, *first;
  float* weights;
  int heads, shared, key, value, together, line, longest; // floats of a row of scores, and of a row of weights
  float scale;
};

#define KEYS 64  // keys of a tile
#define DEEP 32  // elements of queries and keys, or positions of values, in shared memory
#define WIDE 128 // columns of values of a tile

// scoresOf multiplies at most 32 rows of q, times scale, by n rows of k: a thread has two queries and four keys of a tile.
__device__ __forceinline__ void scoresOf(float* scores, int line, float4* tile, const float* q, size_t step, float scale, int rows, const float* k,
                                         size_t stride, int n, int dim) {
  float (*sq)[ROWS + 4] = (float(*)[ROWS + 4])tile;                        // [DEEP][queries]
  float (*sk)[KEYS + 4] = (float(*)[KEYS + 4])((float*)tile + DEEP * (ROWS + 4)); // [DEEP][keys]
  int t = threadIdx.x, ty = t / 16 * 2, tx = t % 16 * 4;
  for (int j0 = 0; j0 < n; j0 += KEYS) {
    float s[2][4] = {{0.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 0.f}};
    for (int d0 = 0; d0 < dim; d0 += DEEP) {
      int deep = dim - d0 < DEEP ? dim - d0 : DEEP;
      #pragma unroll
      for (int e = t; e < DEEP * (ROWS + KEYS); e += THREADS) {
        int r = e / DEEP, d = e % DEEP;
        if (r < ROWS) sq[d][r] = r < rows && d < deep ? q[r * step + d0 + d] * scale : 0.f;
        else {
          r -= ROWS;
          sk[d][r] = j0 + r < n && d < deep ? k[(j0 + r) * stride + d0 + d] : 0.f;
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
        if (j0 + tx + j < n) scores[(ty + i) * line + j0 + tx + j] = s[i][j];
  }
  __syncthreads();
}

// mixes multiplies at most 32 rows of scores, of n positions, by values v, and the result by scale: a thread has four rows and four columns of a
// tile.
__device__ __forceinline__ void mixes(float* out, size_t step, float scale, int rows, const float* scores, int line, float4* tile, const float* v,
                                      size_t stride, int n, int dim) {
  float* sv = (float*)tile;
  int t = threadIdx.x, warp = t / 32, lane = t % 32;
  for (int c0 = 0; c0 < dim; c0 += WIDE) {
    int wide = dim - c0 < WIDE ? dim - c0 : WIDE;
    float total[4][4], s[4][4];
    for (int j0 = 0; j0 < n; j0 += DEEP) {
      int deep = n - j0 < DEEP ? n - j0 : DEEP;
      #pragma unroll
      for (int e = t; e < DEEP * WIDE; e += THREADS) {
        int j = e / WIDE, c = e % WIDE;
        sv[e] = j < deep && c < wide ? v[(j0 + j) * stride + c0 + c] : 0.f;
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
        for (int i = 0; i < 4; i++) fma4(s[i], scores[(4 * warp + i) * line + j0 + j], y);
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
        if (4 * warp + i < rows && 4 * lane + c < wide) out[(4 * warp + i) * step + c0 + 4 * lane + c] = total[i][c] * scale;
  }
}

// wholes computes it for 32 queries of a head: a block. Scores are in the memory that the launch adds.
extern "C" __global__ void __launch_bounds__(THREADS) wholes(Whole a) {
  __shared__ float4 tile[DEEP * WIDE / 4];
  __shared__ double sums[ROWS][8];
  float* scores = (float*)added();
  int t = threadIdx.x, warp = t / 32, lane = t % 32, head = blockIdx.x % a.heads, i0 = blockIdx.x / a.heads * ROWS;
  int length = a.lengths[blockIdx.y], kv = a.heads / a.shared, own = head / a.shared;
  if (i0 >= length) return;
  size_t start = a.starts[blockIdx.y];
  int from = a.from[i0], to = (i0 / a.together + 1) * a.together;
  if (to > length) to = length;
  int n = to - from, rows = length - i0 < ROWS ? length - i0 : ROWS;
  scoresOf(scores, a.line, tile, a.q + ((start + i0) * a.heads + head) * a.key, (size_t)a.heads * a.key, a.scale, rows,
           a.k + ((start + from) * kv + own) * a.key, (size_t)kv * a.key, n, a.key);
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
    float *row = scores + r * a.line, *weights = a.weights + ((start + i0 + r) * a.heads + head) * a.longest + from;
    double scale = 1 / lanes(sums[r]);
    for (int j = a.first[i0 + r] - from + lane; j < i0 + r + 1 - from; j += 32) {
      row[j] = (float)((double)row[j] * scale);
      if (a.weights) weights[j] = row[j];
    }
  }
  __syncthreads();
  mixes(a.out + ((start + i0) * a.heads + head) * a.value, (size_t)a.heads * a.value, 1.f, rows, scores, a.line, tile,
        a.v + ((start + from) * kv + own) * a.value, (size_t)kv * a.value, n, a.value);
}

// Back is the way back through Whole: d is the gradient of its result o, p are its weights. The gradients of scores go to ds
// [rows][heads][longest]. `together` queries of the heads that share keys are one segment of the sums of dk and dv.
struct Back {
  float *dq, *dk, *dv, *ds;
  const float *q, *k, *v, *o, *d, *p;
  const int *starts, *lengths, *from, *first;
  int heads, shared, key, value, together, line, longest;
  float scale;
};

// queryBacks computes gradients of scores and of queries, for at most 32 queries of a head: a block.
extern "C" __global__ void __launch_bounds__(THREADS) queryBacks(Back a) {
  __shared__ float4 tile[DEEP * WIDE / 4];
  __shared__ double sums[ROWS][4];
  float* scores = (float*)added();
  int t = threadIdx.x, head = blockIdx.x % a.heads, u = blockIdx.x / a.heads, tiles = (a.together + ROWS - 1) / ROWS;
  int i0 = u / tiles * a.together + u % tiles * ROWS, to = (u / tiles + 1) * a.together;
  int length = a.lengths[blockIdx.y], kv = a.heads / a.shared, own = head / a.shared;
  if (to > length) to = length;
  if (i0 >= to) return;
  size_t start = a.starts[blockIdx.y], at = (start + i0) * a.heads + head;
  int from = a.from[i0], n = to - from, rows = to - i0 < ROWS ? to - i0 : ROWS;
  if (t / 4 < rows) {
    const float *d = a.d + (at + (size_t)(t / 4) * a.heads) * a.value, *o = a.o + (at + (size_t)(t / 4) * a.heads) * a.value;
    double s = 0;
    #pragma unroll 8
    for (int i = t % 4; i < a.value; i += 4) s += (double)d[i] * (double)o[i];
    sums[t / 4][t % 4] = s;
  }
  scoresOf(scores, a.line, tile, a.d + at * a.value, (size_t)a.heads * a.value, 1.f, rows, a.v + ((start + from) * kv + own) * a.value,
           (size_t)kv * a.value, n, a.value);
  for (int r = t / 32; r < rows; r += THREADS / 32) {
    size_t row = (at + (size_t)r * a.heads) * a.longest + from;
    float dot = (float)(sums[r][0] + sums[r][1] + sums[r][2] + sums[r][3]), *of = scores + r * a.line;
    int first = a.first[i0 + r] - from, last = i0 + r - from;
    for (int j = t % 32; j < n; j += 32) {
      float p = j < first || j > last ? 0.f : a.p[row + j];
      a.ds[row + j] = of[j] = p * __fadd_rn(of[j], -dot);
    }
  }
  __syncthreads();
  mixes(a.dq + at * a.key, (size_t)a.heads * a.key, a.scale, rows, scores, a.line, tile, a.k + ((start + from) * kv + own) * a.key, (size_t)kv * a.key,
        n, a.key);
}

#define FEW 16 // rows of queries in shared memory

// keyBacks computes gradients of 64 keys or values of a head: a block. A thread has four of them and eight columns of a tile.
extern "C" __global__ void __launch_bounds__(THREADS) keyBacks(Back a) {
  __shared__ float4 tile[FEW * WIDE / 4];
  __shared__ float4 few[FEW * KEYS / 4];
  float *sx = (float*)tile, *sw = (float*)few;
  int t = threadIdx.x, ty = t / 16 * 4, tx = t % 16 * 4, kv = a.heads / a.shared, own = blockIdx.x / 2 % kv, j0 = blockIdx.x / 2 / kv * KEYS;
  int length = a.lengths[blockIdx.y];
  if (j0 >= length) return;
  bool values = blockIdx.x % 2;
  size_t start = a.starts[blockIdx.y];
  const float *x = values ? a.d : a.q, *w = values ? a.p : a.ds;
  int dim = values ? a.value : a.key;
  float *out = values ? a.dv : a.dk, scale = values ? 1.f : a.scale;
  for (int c0 = 0; c0 < dim; c0 += WIDE) {
    float total[4][8], s[4][8];
    #pragma unroll
    for (int i = 0; i < 4; i++)
      #pragma unroll
      for (int c = 0; c < 8; c++) total[i][c] = 0.f;
    for (int i0 = j0 / a.together * a.together; i0 < length; i0 += a.together) {
      int n = length - i0 < a.together ? length - i0 : a.together, from = a.from[i0], to = i0 + n, rows = a.shared * n;
      if (from >= j0 + KEYS) break; // later queries see later keys
      #pragma unroll
      for (int i = 0; i < 4; i++)
        #pragma unroll
        for (int c = 0; c < 8; c++) s[i][c] = 0.f;
      for (int r0 = 0; r0 < rows; r0 += FEW) {
        int deep = rows - r0 < FEW ? rows - r0 : FEW;
        #pragma unroll
        for (int e = t; e < FEW * WIDE; e += THREADS) {
          int r = r0 + e / WIDE, c = c0 + e % WIDE;
          sx[e] = r < rows && c < dim ? x[((start + i0 + r % n) * a.heads + own * a.shared + r / n) * dim + c] * scale : 0.f;
        }
        #pragma unroll
        for (int e = t; e < FEW * KEYS; e += THREADS) {
          int r = r0 + e / KEYS, j = j0 + e % KEYS, i = i0 + r % n;
          bool in = r < rows && j < to && j >= from && (!values || j <= i && j >= a.first[i]);
          sw[e] = in ? w[((start + i) * a.heads + own * a.shared + r / n) * a.longest + j] : 0.f;
        }
        __syncthreads();
        for (int r = 0; r < deep; r++) {
          float4 y = *(const float4*)(sx + r * WIDE + tx), z = *(const float4*)(sx + r * WIDE + WIDE / 2 + tx);
          #pragma unroll
          for (int i = 0; i < 4; i++) {
            fma4(s[i], sw[r * KEYS + ty + i], y);
            fma4(s[i] + 4, sw[r * KEYS + ty + i], z);
          }
        }
        __syncthreads();
      }
      #pragma unroll
      for (int i = 0; i < 4; i++)
        if (j0 + ty + i >= from && j0 + ty + i < to)
          #pragma unroll
          for (int c = 0; c < 8; c++) total[i][c] = __fadd_rn(total[i][c], s[i][c]);
    }
    for (int i = 0; i < 4; i++)
      for (int c = 0; c < 8; c++) {
        int d = c0 + c / 4 * (WIDE / 2) + tx + c % 4;
        if (j0 + ty + i < length && d < dim) out[((start + j0 + ty + i) * kv + own) * dim + d] = total[i][c];
      }
  }
}
