// Mixtures of experts. Choices, those of a token next to each other, are sorted by expert: the rows of an expert lie together, and a block of a
// product finds those of its expert by where they end. Weights of experts are panels, at addresses in a table.

#define EXPERTS 512 // that a token may choose from
#define CHOICES 32  // of a token

// Routes is the choice of experts by scores [rows][experts].
struct Routes {
  const float *scores, *correction, *gains; // the latter of all experts, or null
  float *weights, *left;                    // [rows][choices]; what is left of the scores, or null
  int* chosen;
  double epsilon, scale;
  int rows, experts, choices, scoring, normalize, groups, best, of; // the `best` of the groups, by the sums of the best `of` of each
};
enum { PLAIN, SOFTMAX, SIGMOID, CHOSEN };

// key has the order of numbers; it is 0 for what is not a number.
__device__ __forceinline__ unsigned key(float x) {
  if (x != x) return 0;
  unsigned u = __float_as_uint(__fadd_rn(x, 0.f)); // -0 is 0
  return u >> 31 ? ~u : u | 1u << 31;
}
#define LOWEST 0x007fffffu // the key of -Inf

// best takes the largest of n keys from them, the first of equal ones, and returns its index, or -1. This and shares are the work of a warp.
__device__ __forceinline__ int best(unsigned* keys, int n) {
  unsigned top = 0, at = ~0u;
  for (int i = threadIdx.x % 32; i < n; i += 32) if (keys[i] > top) { top = keys[i]; at = i; }
  unsigned most = __reduce_max_sync(~0u, top);
  if (most == 0) return -1;
  at = __reduce_min_sync(~0u, top == most ? at : ~0u);
  if (threadIdx.x % 32 == at % 32) keys[at] = 0;
  __syncwarp();
  return at;
}

// shares replaces n numbers by their softmax.
__device__ __forceinline__ void shares(float* x, int n, double* sums) {
  int lane = threadIdx.x % 32;
  unsigned top = 0;
  bool bad = false;
  for (int i = lane; i < n; i += 32) {
    unsigned k = key(x[i]);
    if (k > top) top = k;
    if (k == 0) bad = true;
  }
  bad = __ballot_sync(~0u, bad) != 0;
  top = __reduce_max_sync(~0u, top);
  if (bad || top == LOWEST || top == 0xff800000u) { // the key of +Inf
    for (int i = lane; i < n; i += 32) x[i] = __uint_as_float(0x7fc00000);
    __syncwarp();
    return;
  }
  double most = __uint_as_float(top >> 31 ? top ^ 1u << 31 : ~top);
  for (int i = lane; i < n; i += 32) {
    double d = (double)x[i] - most;
    x[i] = d < -700 ? 0.f : (float)exact(d);
  }
  __syncwarp();
  if (lane < 8) {
    double s = 0;
    for (int i = lane; i < n; i += 8) s += (double)x[i];
    sums[lane] = s;
  }
  __syncwarp();
  double scale = 1 / lanes(sums);
  for (int i = lane; i < n; i += 32) x[i] = (float)((double)x[i] * scale);
  __syncwarp();
}

// routes chooses experts and their weights. A warp takes a token.
extern "C" __global__ void __launch_bounds__(THREADS) routes(Routes a) {
  __shared__ float scores[THREADS / 32][EXPERTS], picked[THREADS / 32][CHOICES];
  __shared__ unsigned keys[THREADS / 32][EXPERTS + CHOICES];
  __shared__ int chosen[THREADS / 32][CHOICES];
  __shared__ double sums[THREADS / 32][8];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x * (THREADS / 32) + warp;
  if (row >= a.rows) return;
  float* s = scores[warp];
  unsigned* k = keys[warp];
  for (int i = lane; i < a.experts; i += 32) {
    float x = a.scores[(size_t)row * a.experts + i];
    s[i] = a.scoring == SIGMOID ? (float)(1 / (1 + exact(-(double)x))) : x;
  }
  __syncwarp();
  if (a.scoring == SOFTMAX) shares(s, a.experts, sums[warp]);
  auto good = [&](int i) { return key(a.correction ? __fadd_rn(s[i], a.correction[i]) : s[i]); };
  for (int i = lane; i < a.experts; i += 32) k[i] = good(i);
  __syncwarp();
  if (a.groups > 1) {
    int size = a.experts / a.groups;
    unsigned* groups = k + EXPERTS;
    for (int g = 0; g < a.groups; g++) {
      float sum = 0.f;
      for (int i = 0; i < a.of; i++) {
        int j = best(k + g * size, size);
        if (j < 0) break;
        j += g * size;
        sum = __fadd_rn(sum, a.correction ? __fadd_rn(s[j], a.correction[j]) : s[j]);
      }
      if (lane == 0) groups[g] = key(sum);
    }
    __syncwarp();
    unsigned kept = 0;
    for (int i = 0; i < a.best; i++) {
      int g = best(groups, a.groups);
      if (g >= 0) kept |= 1u << g;
    }
    for (int i = lane; i < a.experts; i += 32) k[i] = kept >> i / size & 1 ? good(i) : LOWEST;
    __syncwarp();
  }
  int found = 0;
  for (; found < a.choices; found++) {
    int j = best(k, a.experts);
    if (j < 0) break;
    if (lane == 0) { chosen[warp][found] = j; picked[warp][found] = s[j]; }
  }
  __syncwarp();
  double sum = 0, factor = a.scale;
  for (int i = 0; i < found; i++) sum += (double)picked[warp][i];
  if (a.scoring == CHOSEN) { shares(picked[warp], found, sums[warp]); sum = 1; }
  if (a.normalize) factor /= sum + a.epsilon;
  bool whole = found == a.choices; // or fewer are numbers
  if (a.left) {
    float* left = a.left + (size_t)row * a.experts;
    for (int i = lane; i < a.experts; i += 32) left[i] = s[i];
    __syncwarp();
    if (a.scoring == CHOSEN && whole && lane < found) left[chosen[warp][lane]] = picked[warp][lane];
  }
  if (lane >= a.choices) return;
  int j = whole ? chosen[warp][lane] : lane;
  float w = whole ? (float)((double)picked[warp][lane] * factor) : __uint_as_float(0x7fc00000);
  if (a.gains) w = w * a.gains[j];
  a.chosen[(size_t)row * a.choices + lane] = j;
  a.weights[(size_t)row * a.choices + lane] = w;
}

// members sorts choices by expert, and within one by token. Choice i comes to places[i], those of an expert end before its element of ends. A block takes
// an expert.
extern "C" __global__ void __launch_bounds__(THREADS) members(int* choices, int* places, int* ends, const int* chosen, int count) {
  __shared__ int own[THREADS], before[THREADS]; // choices of this expert, and of those before it, by the threads until one
  int t = threadIdx.x, expert = blockIdx.x, each = (count + THREADS - 1) / THREADS, lo = t * each, hi = lo + each, mine = 0, less = 0;
  if (hi > count) hi = count;
  for (int i = lo; i < hi; i++) { mine += chosen[i] == expert; less += chosen[i] < expert; }
  own[t] = mine;
  before[t] = less;
  __syncthreads();
  for (int step = 1; step < THREADS; step *= 2) {
    int x = t < step ? 0 : own[t - step], y = t < step ? 0 : before[t - step];
    __syncthreads();
    own[t] += x;
    before[t] += y;
    __syncthreads();
  }
  int at = before[THREADS - 1] + own[t] - mine;
  for (int i = lo; i < hi; i++) if (chosen[i] == expert) { choices[at] = i; places[i] = at++; }
  if (t == THREADS - 1) ends[expert] = at;
}

// Crowd is a product of the rows of every expert by its matrix [n][k], at first[expert]. With choices row i is that of the token of choices[i]. Of
// matrices whose positions are `step` apart, unless that is 0, rows lie together.
struct Crowd {
  float* dst;
  const float* x;
  const unsigned long long *first, *second; // the latter or null
  const int *choices, *ends;
  int of, n, k, split; // choices of a token; blocks that share the rows of an expert
  int type, step;      // of the elements of matrices, see Factor
};

// element is one of a matrix; with HALVES it has 16 bits.
template <bool HALVES> __device__ __forceinline__ float element(const void* from, size_t i, int type) {
  if (!HALVES) return ((const float*)from)[i];
  unsigned short x = ((const unsigned short*)from)[i];
  return type == F16 ? half(x) : __uint_as_float((unsigned)x << 16);
}
template <bool HALVES> __device__ __forceinline__ const void* past(const void* from, size_t i) { return (const char*)from + i * (HALVES ? 2 : 4); }

// Few computes tiles of so many rows: a warp has a segment of the sums of two panels, which are one of either matrix, or neighbors in the only one.
// With two of them the result is SiLU of the first product times the second.
#define FEW_ROWS 8
template <bool TWO, bool HALVES> __device__ __forceinline__ void few(Crowd a) {
  __shared__ float4 rows[THREADS / 32][PANEL][FEW_ROWS / 4 + 1]; // by position
  __shared__ float sums[THREADS / 32][FEW_ROWS][2 * PANEL];
  __shared__ int source[FEW_ROWS];
  int t = threadIdx.x, warp = t / 32, lane = t % 32, expert = blockIdx.y / a.split, from = expert ? a.ends[expert - 1] : 0, m = a.ends[expert] - from;
  int segments = (a.k + SEGMENT - 1) / SEGMENT, side = segments < 8 ? segments : 8, groups = 8 / side, own = warp % side;
  int panels = (a.n + PANEL - 1) / PANEL, width = TWO ? 1 : 2, panel = (blockIdx.x * groups + warp / side) * width;
  bool busy = warp / side < groups && panel < panels;
  const void* one = past<HALVES>((const void*)a.first[expert], (size_t)panel * PANEL * a.k + lane);
  const void* two = TWO ? past<HALVES>((const void*)a.second[expert], (size_t)panel * PANEL * a.k + lane)
                        : panel + 1 < panels ? past<HALVES>(one, (size_t)PANEL * a.k) : one;
  for (int tile = blockIdx.y % a.split * FEW_ROWS; tile < m; tile += a.split * FEW_ROWS) {
    int left = m - tile < FEW_ROWS ? m - tile : FEW_ROWS;
    if (t < left) source[t] = a.choices ? a.choices[from + tile + t] / a.of : from + tile + t;
    __syncthreads();
    float total[2] = {0.f, 0.f};
    for (int first = 0; first < segments; first += side) {
      if (busy && first + own < segments) {
        int base = (first + own) * SEGMENT, count = a.k - base < SEGMENT ? a.k - base : SEGMENT;
        const void *y = past<HALVES>(one, (size_t)base * PANEL), *z = past<HALVES>(two, (size_t)base * PANEL);
        float s[2][FEW_ROWS], next[FEW_ROWS];
        #pragma unroll
        for (int r = 0; r < FEW_ROWS; r++) s[0][r] = s[1][r] = 0.f;
        auto load = [&](int p) {
          #pragma unroll
          for (int r = 0; r < FEW_ROWS; r++) next[r] = r < left && p + lane < count ? a.x[(size_t)source[r] * a.k + base + p + lane] : 0.f;
        };
        load(0);
        for (int p = 0; p < count; p += PANEL) {
          __syncwarp();
          #pragma unroll
          for (int r = 0; r < FEW_ROWS; r += 4) rows[warp][lane][r / 4] = make_float4(next[r], next[r + 1], next[r + 2], next[r + 3]);
          __syncwarp();
          if (p + PANEL < count) load(p + PANEL);
          auto step = [&](int q) {
            float u = element<HALVES>(y, (size_t)(p + q) * PANEL, a.type), v = element<HALVES>(z, (size_t)(p + q) * PANEL, a.type);
            #pragma unroll
            for (int r = 0; r < FEW_ROWS; r += 4) {
              float4 x = rows[warp][q][r / 4];
              fma4(&s[0][r], u, x);
              fma4(&s[1][r], v, x);
            }
          };
          if (p + PANEL <= count) {
            #pragma unroll 8
            for (int q = 0; q < PANEL; q++) step(q);
          } else for (int q = 0; q < count - p; q++) step(q);
        }
        #pragma unroll
        for (int r = 0; r < FEW_ROWS; r++) { sums[warp][r][lane] = s[0][r]; sums[warp][r][PANEL + lane] = s[1][r]; }
      }
      __syncthreads();
      for (int g = 0; g < groups; g++) { // several of them have all segments now
        for (int i = 0; i < side && first + i < segments; i++)
          for (int h = 0; h < 2; h++) {
            float v = sums[g * side + i][warp][h * PANEL + lane];
            total[h] = first + i == 0 ? v : __fadd_rn(total[h], v);
          }
        int column = (blockIdx.x * groups + g) * width * PANEL + lane;
        if (first + side < segments || warp >= left) continue;
        float* dst = a.dst + (size_t)(from + tile + warp) * a.n;
        if (TWO) {
          double v = total[0];
          if (column < a.n) dst[column] = (float)(v / (1 + exact(-v))) * total[1];
        } else {
          if (column < a.n) dst[column] = total[0];
          if (column + PANEL < a.n) dst[column + PANEL] = total[1];
        }
      }
      __syncthreads();
    }
  }
}
extern "C" __global__ void __launch_bounds__(THREADS, 3) inners(Crowd a) { few<true, false>(a); }
extern "C" __global__ void __launch_bounds__(THREADS, 3) outers(Crowd a) { few<false, false>(a); }
extern "C" __global__ void __launch_bounds__(THREADS, 3) innerHalves(Crowd a) { few<true, true>(a); }
extern "C" __global__ void __launch_bounds__(THREADS, 3) outerHalves(Crowd a) { few<false, true>(a); }

// crowds puts rows of k positions into panels, those of each expert into its own: they begin at that of its first choice, and as many after it as there are
// experts before. A block takes 32 positions of an expert.
extern "C" __global__ void __launch_bounds__(THREADS) crowds(float* dst, Crowd a) {
  __shared__ float s[PANEL][PANEL + 1];
  int x = threadIdx.x % 32, p0 = blockIdx.x * 32, expert = blockIdx.y, from = expert ? a.ends[expert - 1] : 0, m = a.ends[expert] - from;
  for (int i0 = 0; i0 < m; i0 += PANEL) {
    for (int y = threadIdx.x / 32; y < PANEL; y += THREADS / 32) {
      int i = from + i0 + y;
      s[y][x] = i0 + y < m && p0 + x < a.k ? a.x[(size_t)(a.choices ? a.choices[i] / a.of : i) * a.k + p0 + x] : 0.f;
    }
    __syncthreads();
    float* panel = dst + (size_t)(from / PANEL + expert + i0 / PANEL) * a.k * PANEL;
    for (int y = threadIdx.x / 32; y < 32 && p0 + y < a.k; y += THREADS / 32) panel[(size_t)(p0 + y) * PANEL + x] = s[x][y];
    __syncthreads();
  }
}

// many computes tiles of 128 rows of such panels, x. Matrices of halves have 16 bits.
template <bool HALVES> __device__ __forceinline__ void many(const Crowd& a) {
  __shared__ float4 memory[3 * 16 * (128 + TN) / 4];
  int expert = blockIdx.y / a.split, tile = blockIdx.y % a.split, from = expert ? a.ends[expert - 1] : 0, m = a.ends[expert] - from;
  if (tile * 128 >= m) return;
  long long panel = (long long)PANEL * a.k;
  Factor x = {a.x + (from / PANEL + expert) * panel, panel, PANEL, F32}, w = {(const float*)a.first[expert], panel, PANEL, a.type};
  if (a.step) { w.panel = PANEL; w.step = a.step; }
  multiply<2, 16, 3, false, HALVES>(memory, a.dst + (size_t)from * a.n, x, w, m, a.n, a.k, a.n, WRITE, ALL, tile * 128, blockIdx.x * TN, Turn());
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) crowds128(Crowd a) { many<false>(a); }
extern "C" __global__ void __launch_bounds__(THREADS, 2) crowdHalves(Crowd a) { many<true>(a); }

// mixes adds the rows of a token, times their weights unless these are null, in the order of the experts.
extern "C" __global__ void __launch_bounds__(THREADS) mixes(float* dst, const float* rows, const float* weights, const int* places, int width, int of) {
  __shared__ int at[CHOICES];
  __shared__ float by[CHOICES];
  int t = threadIdx.x, column = blockIdx.y * THREADS + t;
  places += (size_t)blockIdx.x * of;
  if (t < of) {
    int rank = 0;
    for (int i = 0; i < of; i++) rank += places[i] < places[t];
    at[rank] = places[t];
    by[rank] = weights ? weights[(size_t)blockIdx.x * of + t] : 1.f;
  }
  __syncthreads();
  if (column >= width) return;
  float s = 0.f;
  for (int i = 0; i < of; i++) s = __fadd_rn(s, rows[(size_t)at[i] * width + column] * by[i]);
  dst[(size_t)blockIdx.x * width + column] = s;
}

// weightBacks computes gradients of weights, products of rows of z and dz [count][width], and multiplies rows of dz by the weights: a block 64 of
// them, four threads the lanes of a product.
extern "C" __global__ void __launch_bounds__(THREADS)
weightBacks(float* dw, float* dz, const float* z, const float* weights, const int* choices, int count, int width) {
  __shared__ double sums[THREADS / 4][4];
  int t = threadIdx.x, first = blockIdx.x * (THREADS / 4), own = first + t / 4;
  if (own < count) {
    const float *x = z + (size_t)own * width, *y = dz + (size_t)own * width;
    double s = 0;
    #pragma unroll 8
    for (int i = t % 4; i < width; i += 4) s += (double)x[i] * (double)y[i];
    sums[t / 4][t % 4] = s;
  }
  __syncthreads();
  if (own < count && t % 4 == 0) {
    const double* s = sums[t / 4];
    dw[choices[own]] = (float)(s[0] + s[1] + s[2] + s[3]);
  }
  for (int r = t / 32; r < THREADS / 4 && first + r < count; r += THREADS / 32) {
    float *row = dz + (size_t)(first + r) * width, w = weights[choices[first + r]];
    for (int i = t % 32; i < width; i += 32) row[i] = row[i] * w;
  }
}

// picks copies the rows of the tokens of choices, times their weights unless these are null.
extern "C" __global__ void __launch_bounds__(THREADS) picks(float* dst, const float* src, const float* weights, const int* choices, int width, int of) {
  int column = blockIdx.y * THREADS + threadIdx.x, c = choices[blockIdx.x];
  if (column >= width) return;
  float x = src[(size_t)(c / of) * width + column];
  dst[(size_t)blockIdx.x * width + column] = weights ? x * weights[c] : x;
}

// routeBacks turns what is left of scores into their gradients, for dw [rows][choices], those of the weights. A warp takes a token.
extern "C" __global__ void __launch_bounds__(THREADS) routeBacks(Routes a, const float* dw) {
  __shared__ float values[THREADS / 32][CHOICES], slopes[THREADS / 32][CHOICES];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x * (THREADS / 32) + warp, j = 0;
  if (row >= a.rows) return;
  float *d = a.left + (size_t)row * a.experts, *v = values[warp], *w = slopes[warp];
  if (lane < a.choices) {
    j = a.chosen[(size_t)row * a.choices + lane];
    v[lane] = d[j];
    w[lane] = dw[(size_t)row * a.choices + lane];
    if (a.gains) w[lane] = w[lane] * a.gains[j];
  }
  __syncwarp();
  double sum = a.epsilon, dot = 0, total = 0, factor = a.scale, level = 0;
  for (int i = 0; i < a.choices; i++) { sum += (double)v[i]; dot += (double)w[i] * (double)v[i]; }
  if (a.normalize) { factor /= sum; level = dot / sum; }
  for (int i = 0; i < a.choices; i++) total += factor * ((double)w[i] - level) * (double)v[i];
  for (int i = lane; i < a.experts; i += 32) d[i] = a.scoring == SOFTMAX ? (float)(-total * (double)d[i]) : 0.f;
  __syncwarp();
  if (lane >= a.choices) return;
  double x = v[lane], dv = factor * ((double)w[lane] - level);
  d[j] = (float)(a.scoring == SIGMOID ? dv * (x * (1 - x)) : a.scoring == PLAIN ? dv : x * (dv - total));
}
