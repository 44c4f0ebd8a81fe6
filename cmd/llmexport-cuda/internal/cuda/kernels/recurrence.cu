// Convolutions and recurrences over windows, and gates. The arithmetic is that of pipeline/forward (conv.go, delta.go, mamba.go, rule.go,
// recurrence.go): float64 where it is there, and 32 tokens of a recurrence at a time.

#define TOGETHER 32 // tokens
#define SLICE 64    // columns of values that a block takes

// sigmoid is 1/(1 + exp(-x)).
__device__ __forceinline__ float sigmoid(float x) { return (float)(1 / (1 + exact(-(double)x))); }

// softplus is log(1 + exp(x)).
__device__ __forceinline__ double softplus(double x) {
  double e = exact(x < 0 ? x : -x), y = 1 + e;
  return (x > 0 ? x : 0) + (y == 1 ? e : e != e ? e : logarithm(y) * (e / (y - 1)));
}

// sigmoids multiplies x by those of by, each of which is for `each` elements.
extern "C" __global__ void __launch_bounds__(THREADS) sigmoids(float* x, const float* by, unsigned long long n, int each) {
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (i < n) x[i] = x[i] * sigmoid(by[i / each]);
}

// Convolution adds up the last rows of a column times taps [count][width], and takes SiLU of that. If src is gated it has three times as many columns,
// of which the product of the first and the last third is taken, and the sum is multiplied by the second instead.
struct Convolution {
  float* dst;
  const float *src, *taps, *bias;
  unsigned long long n; // of dst
  int width, count, gated;
  __device__ __forceinline__ float read(size_t row, int column) {
    if (!gated) return src[row * width + column];
    const float* x = src + row * 3 * width + column;
    return x[0] * x[2 * width];
  }
  __device__ __forceinline__ void write(size_t row, int column, double s) {
    dst[row * width + column] = gated ? (float)s * src[(row * 3 + 1) * width + column] : silu((float)s);
  }
};

// convolves computes it for whole windows; places are those of rows in them.
extern "C" __global__ void __launch_bounds__(THREADS) convolves(Convolution a, const int* places) {
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, row = i / a.width;
  if (i >= a.n) return;
  int column = i % a.width, last = a.count - 1, first = last - places[row];
  double s = a.bias ? (double)a.bias[column] : 0;
  for (int j = first > 0 ? first : 0; j <= last; j++) s += (double)a.taps[(size_t)j * a.width + column] * (double)a.read(row - (last - j), column);
  a.write(row, column, s);
}

// convolveTokens computes it for token `at` of windows, of which left [window][count-1][width] has the last rows.
extern "C" __global__ void __launch_bounds__(THREADS) convolveTokens(Convolution a, float* left, int at) {
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, row = i / a.width;
  if (i >= a.n) return;
  int column = i % a.width, last = a.count - 1, first = last - at;
  float *before = left + row * last * a.width + column, x = a.read(row, column);
  double s = a.bias ? (double)a.bias[column] : 0;
  for (int j = first > 0 ? first : 0; j <= last; j++)
    s += (double)a.taps[(size_t)j * a.width + column] * (double)(j == last ? x : before[(size_t)j * a.width]);
  for (int j = 1; j <= last; j++) before[(size_t)(j - 1) * a.width] = j == last ? x : before[(size_t)j * a.width];
  a.write(row, column, s);
}

// Recurrence is linear attention with decay over windows: by the gated delta rule, where rows of mixed are queries and keys of all key heads, and values
// of all heads; or Mamba 2, where they are values, keys and queries.
struct Recurrence {
  float* out;
  const float *mixed, *strengths, *times, *decay, *bias, *direct;
  const int *starts, *lengths;
  int rule, keyHeads, heads, key, value;
  double eps, least, most; // times
  __device__ __forceinline__ int width() { return 2 * keyHeads * key + heads * value; }
  __device__ __forceinline__ int keysAt(int head) { return (rule ? keyHeads * key : heads * value) + head / (heads / keyHeads) * key; }
  __device__ __forceinline__ int queriesAt(int head) { return keysAt(head) + (rule ? -keyHeads : keyHeads) * key; }
  __device__ __forceinline__ int valuesAt(int head) { return (rule ? 2 * keyHeads * key : 0) + head * value; }
  // pace finds the time of a token, and what remains of the state.
  __device__ __forceinline__ void pace(size_t of, int head, float& time, float& keep) {
    double t = softplus((double)times[of] + (double)bias[head]);
    t = t < least ? least : t;
    t = t > most ? most : t;
    time = (float)t;
    keep = (float)exact((double)decay[head] * (rule ? t : (double)time));
  }
};

// tiles multiplies m rows by n columns, a multiple of 4: a thread has two rows and four columns of a(row, d) b(d, column) at a time, which put takes.
template <class A, class B, class P> __device__ __forceinline__ void tiles(int m, int n, int depth, A a, B b, P put) {
  for (int e = threadIdx.x; e < (m + 1) / 2 * (n / 4); e += THREADS) {
    int i = e / (n / 4) * 2, j = e % (n / 4) * 4;
    float s[2][4] = {{0.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 0.f}};
    #pragma unroll 4
    for (int d = 0; d < depth; d++) {
      float4 y = b(d, j);
      fma4(s[0], a(i, d), y);
      fma4(s[1], a(i + 1, d), y);
    }
    #pragma unroll
    for (int r = 0; r < 2; r++)
      #pragma unroll
      for (int c = 0; c < 4; c++)
        if (i + r < m) put(i + r, j + c, s[r][c]);
  }
}

// recurrences computes it for a slice of the values of a head of a window: a block, which has the state in the memory that the launch adds:
// 64 rows of queries and keys as long as line, state [key][SLICE], values [TOGETHER][SLICE] behind it, and before that what they are made of.
extern "C" __global__ void __launch_bounds__(THREADS) recurrences(Recurrence a) {
  __shared__ float fade[TOGETHER][TOGETHER], pairs[TOGETHER][TOGETHER], mix[TOGETHER][TOGETHER], inverse[TOGETHER][TOGETHER];
  __shared__ float strength[TOGETHER], time[TOGETHER], keep[TOGETHER], since[TOGETHER];
  __shared__ double factor[2 * TOGETHER];
  int t = threadIdx.x, slices = (a.value + SLICE - 1) / SLICE, head = blockIdx.x / slices, c0 = blockIdx.x % slices * SLICE;
  int queries = a.queriesAt(head), keys = a.keysAt(head), values = a.valuesAt(head) + c0, width = a.width(), line = (a.key + 3) / 4 * 4 + 4;
  int cols = a.value - c0 < SLICE ? a.value - c0 : SLICE, length = a.lengths[blockIdx.y];
  float *q = (float*)added(), *k = q + TOGETHER * line, *state = k + TOGETHER * line, *u = state + a.key * SLICE, *w = u + TOGETHER * SLICE;
  for (int e = t; e < a.key * SLICE; e += THREADS) state[e] = 0.f;
  for (int at = 0; at < length; at += TOGETHER) {
    int n = length - at < TOGETHER ? length - at : TOGETHER;
    size_t start = (size_t)a.starts[blockIdx.y] + at;
    const float* rows = a.mixed + start * width;
    __syncthreads();
    for (int e = t; e < 2 * TOGETHER * a.key; e += THREADS) {
      int i = e / a.key, d = e % a.key;
      q[i * line + d] = i % TOGETHER < n ? rows[(size_t)(i % TOGETHER) * width + (i < TOGETHER ? queries : keys) + d] : 0.f;
    }
    if (t < n) {
      size_t of = (start + t) * a.heads + head;
      if (a.rule) strength[t] = sigmoid(a.strengths[of]);
      a.pace(of, head, time[t], keep[t]);
    }
    __syncthreads();
    if (t < 2 * TOGETHER) { // lengths of queries and keys
      double s = a.eps;
      const float* x = q + t * line;
      #pragma unroll 8
      for (int d = 0; d < a.key; d++) s += (double)x[d] * (double)x[d];
      factor[t] = (t < TOGETHER ? 1 / sqrt((double)a.key) : 1.) / sqrt(s);
    } else if (t < 3 * TOGETHER) { // what remains of a token until another one
      int j = t % TOGETHER;
      double f = 1;
      for (int i = 0; i < n; i++) {
        if (i > j) f *= (double)keep[i];
        fade[i][j] = i < j ? 0.f : (float)f;
      }
    } else if (t == 3 * TOGETHER) {
      double f = 1;
      for (int i = 0; i < n; i++) since[i] = (float)(f *= (double)keep[i]);
    }
    __syncthreads();
    if (a.rule)
      for (int e = t; e < 2 * TOGETHER * a.key; e += THREADS) {
        int i = e / a.key, d = e % a.key;
        q[i * line + d] = (float)((double)q[i * line + d] * factor[i]);
      }
    __syncthreads();
    tiles(2 * TOGETHER, TOGETHER, a.key, [&](int i, int d) { return q[i * line + d]; },
          [&](int d, int j) { return make_float4(k[j * line + d], k[(j + 1) * line + d], k[(j + 2) * line + d], k[(j + 3) * line + d]); },
          [&](int i, int j, float s) {
            int r = i % TOGETHER;
            if (r >= n || j >= n) return;
            if (i < TOGETHER) pairs[r][j] = s * fade[r][j];
            else if (a.rule) mix[r][j] = strength[r] * fade[r][j] * s;
          });
    if (a.rule) {
      tiles(n, SLICE, a.key, [&](int i, int d) { return k[i * line + d]; }, [&](int d, int j) { return *(const float4*)(state + d * SLICE + j); },
            [&](int i, int j, float s) {
              float v = j < cols ? rows[(size_t)i * width + values + j] : 0.f;
              w[i * SLICE + j] = __fadd_rn(v, -(since[i] * s));
            });
      __syncthreads();
      if (t < TOGETHER) // columns of the inverse do not depend on each other
        for (int i = 0; i < n; i++) {
          float s = i == t ? 1.f : 0.f;
          for (int j = t; j < i; j++) s = __fadd_rn(s, -(mix[i][j] * inverse[j][t]));
          inverse[i][t] = s;
        }
      __syncthreads();
      tiles(n, SLICE, n, [&](int i, int d) { return inverse[i][d] * strength[d]; }, [&](int d, int j) { return *(const float4*)(w + d * SLICE + j); },
            [&](int i, int j, float s) { u[i * SLICE + j] = s; });
    } else {
      for (int e = t; e < n * SLICE; e += THREADS) u[e] = e % SLICE < cols ? rows[(size_t)(e / SLICE) * width + values + e % SLICE] * time[e / SLICE] : 0.f;
    }
    __syncthreads();
    tiles(n, SLICE, a.key + n, [&](int i, int d) { return d < a.key ? q[i * line + d] * since[i] : pairs[i][d - a.key]; },
          [&](int d, int j) { return *(const float4*)(state + d * SLICE + j); },
          [&](int i, int j, float s) {
            if (j >= cols) return;
            if (!a.rule) s = __fadd_rn(s, a.direct[head] * rows[(size_t)i * width + values + j]);
            a.out[((start + i) * a.heads + head) * a.value + c0 + j] = s;
          });
    __syncthreads();
    if (n == TOGETHER)
      tiles(a.key, SLICE, n, [&](int i, int d) { return k[d * line + i] * fade[n - 1][d]; },
            [&](int d, int j) { return *(const float4*)(u + d * SLICE + j); },
            [&](int i, int j, float s) { state[i * SLICE + j] = __fadd_rn(state[i * SLICE + j] * since[n - 1], s); });
  }
}

// recurrenceTokens is recurrences for token `at` of a window and a head: a block. For each of them left has the state before the chunk [key][value], and of
// its tokens so far keys [key][TOGETHER], values and what these are made of [TOGETHER][value], the inverse, strengths, and what they keep.
extern "C" __global__ void __launch_bounds__(THREADS) recurrenceTokens(Recurrence a, float* left, int at) {
  __shared__ float q[ELEMENTS], k[ELEMENTS], fade[TOGETHER], pairs[TOGETHER], mix[TOGETHER], row[TOGETHER], keep[TOGETHER], since, time;
  __shared__ double factor[2];
  int t = threadIdx.x, head = blockIdx.x, i = at % TOGETHER, n = i + 1;
  size_t of = (size_t)blockIdx.y * a.heads + head;
  const float* mixed = a.mixed + (size_t)blockIdx.y * a.width();
  float* state = left + of * (a.key * a.value + TOGETHER * (a.key + 2 * a.value + TOGETHER + 2));
  float *keys = state + a.key * a.value, *u = keys + TOGETHER * a.key, *w = u + TOGETHER * a.value, *inverse = w + TOGETHER * a.value;
  float *strengths = inverse + TOGETHER * TOGETHER, *keeps = strengths + TOGETHER;
  bool begins = at == i; // the state is 0
  for (int d = t; d < a.key; d += THREADS) {
    q[d] = mixed[a.queriesAt(head) + d];
    k[d] = mixed[a.keysAt(head) + d];
  }
  if (t < i) keep[t] = keeps[t];
  if (t == i) {
    a.pace(of, head, time, keep[i]);
    keeps[i] = keep[i];
    if (a.rule) strengths[i] = sigmoid(a.strengths[of]);
  }
  __syncthreads();
  if (t % 32 == 0 && t < 64) {
    double s = a.eps;
    const float* x = t ? k : q;
    #pragma unroll 8
    for (int d = 0; d < a.key; d++) s += (double)x[d] * (double)x[d];
    factor[t / 32] = (t ? 1. : 1 / sqrt((double)a.key)) / sqrt(s);
  } else if (t >= 64 && t < 64 + n) {
    double f = 1;
    for (int j = t - 64 + 1; j < n; j++) f *= (double)keep[j];
    fade[t - 64] = (float)f;
  } else if (t == 128) {
    double f = 1;
    for (int j = 0; j < n; j++) f *= (double)keep[j];
    since = (float)f;
  }
  __syncthreads();
  for (int d = t; d < a.key; d += THREADS) {
    if (a.rule) {
      q[d] = (float)((double)q[d] * factor[0]);
      k[d] = (float)((double)k[d] * factor[1]);
    }
    keys[d * TOGETHER + i] = k[d];
  }
  __syncthreads();
  if (t < (a.rule ? 2 : 1) * TOGETHER && t % TOGETHER < n) {
    const float* x = t < TOGETHER ? q : k;
    float s = 0.f;
    #pragma unroll 8
    for (int d = 0; d < a.key; d++) s = __fmaf_rn(x[d], keys[d * TOGETHER + t % TOGETHER], s);
    if (t < TOGETHER) pairs[t] = s * fade[t];
    else mix[t - TOGETHER] = strengths[i] * fade[t - TOGETHER] * s;
  }
  __syncthreads();
  if (a.rule && t < n) {
    float s = i == t ? 1.f : 0.f;
    for (int j = t; j < i; j++) s = __fadd_rn(s, -(mix[j] * inverse[j * TOGETHER + t]));
    inverse[i * TOGETHER + t] = s;
    row[t] = s * strengths[t];
  }
  __syncthreads();
  for (int c = t; c < a.value; c += THREADS) {
    float read = 0.f, out = 0.f, sum = 0.f;
    #pragma unroll 8
    for (int d = 0; d < a.key; d++) {
      float s = begins ? 0.f : state[d * a.value + c];
      read = __fmaf_rn(k[d], s, read);
      out = __fmaf_rn(q[d] * since, s, out);
    }
    float v = mixed[a.valuesAt(head) + c];
    if (a.rule) {
      w[i * a.value + c] = __fadd_rn(v, -(since * read));
      for (int j = 0; j < n; j++) sum = __fmaf_rn(row[j], w[j * a.value + c], sum);
    }
    u[i * a.value + c] = a.rule ? sum : v * time;
    for (int j = 0; j < n; j++) out = __fmaf_rn(pairs[j], u[j * a.value + c], out);
    a.out[of * a.value + c] = a.rule ? out : __fadd_rn(out, a.direct[head] * v);
  }
  if (n < TOGETHER) return;
  __syncthreads();
  for (int e = t; e < a.key * a.value; e += THREADS) {
    int d = e / a.value, c = e % a.value;
    float s = 0.f;
    #pragma unroll 8
    for (int j = 0; j < TOGETHER; j++) s = __fmaf_rn(keys[d * TOGETHER + j] * fade[j], u[j * a.value + c], s);
    state[e] = __fadd_rn((begins ? 0.f : state[e]) * since, s);
  }
}
