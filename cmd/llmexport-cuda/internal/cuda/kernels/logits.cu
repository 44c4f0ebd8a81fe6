// What follows the product of a head: a block takes a row of n logits. The arithmetic is that of runtime/kernel: float64, sums in the same lanes
// or in the order of the vocabulary, which few threads add while others compute what comes next.

#define TERMS 1024     // of sums, in shared memory at a time
#define DRAW_BLOCK 256 // elements whose exponentials are summed by themselves before a draw

// Shared is the memory of a block of threads.
struct Shared {
  double terms[2][TERMS];
  double sums[32];
  float tops[THREADS];
};

// highest is the largest element, for all threads, or not a number if one is not; if strict, nor if one is infinite.
__device__ __forceinline__ double highest(Shared& s, const float* row, int n, bool strict) {
  int t = threadIdx.x;
  float top = -__uint_as_float(0x7f800000);
  for (int i = t; i < n; i += THREADS) {
    float v = row[i];
    if (strict && !(v - v == 0.f)) v = v - v;
    if (v > top || v != v) top = v;
  }
  s.tops[t] = top;
  __syncthreads();
  for (int step = THREADS / 2; step > 0; step /= 2) {
    if (t < step && (s.tops[t + step] > s.tops[t] || s.tops[t + step] != s.tops[t + step])) s.tops[t] = s.tops[t + step];
    __syncthreads();
  }
  top = s.tops[0];
  __syncthreads();
  return top;
}

// inOrder lets all threads put what belongs to `step` elements at a time into shared memory, and then has add take it, by a few of them.
template <class Put, class Add> __device__ __forceinline__ void inOrder(Shared& s, int n, int step, Put put, Add add) {
  for (int lo = 0, turn = 0; lo < n; lo += step, turn ^= 1) {
    int m = n - lo < step ? n - lo : step;
    for (int i = threadIdx.x; i < m; i += THREADS) put(s.terms[turn], i, lo + i);
    __syncthreads(); // what was added before has been, too
    add(s.terms[turn], lo, m);
  }
  __syncthreads();
}

// inLanes adds `of` terms of every element, each in eight lanes, to the sums that all threads get.
template <int OF, class Put> __device__ __forceinline__ void inLanes(Shared& s, int n, double* sums, Put put) {
  const int STEP = TERMS / OF;
  int t = threadIdx.x;
  double sum = 0;
  inOrder(s, n, STEP, [&](double* terms, int i, int at) {
    double x[OF];
    put(x, at);
    #pragma unroll
    for (int j = 0; j < OF; j++) terms[j * STEP + i] = x[j];
  }, [&](const double* terms, int, int m) {
    if (t < 8 * OF) {
      #pragma unroll 8
      for (int i = t % 8; i < m; i += 8) sum += terms[t / 8 * STEP + i];
    }
  });
  if (t < 8 * OF) s.sums[t] = sum;
  __syncthreads();
  for (int j = 0; j < OF; j++) sums[j] = lanes(s.sums + 8 * j);
  __syncthreads();
}

// within is the exponential of what is not too far below 0.
__device__ __forceinline__ double within(double d) { return d < -700 ? 0 : exact(d); }

// logarithm is that of runtime/kernel (softmax_log.go), of finite numbers from 1 on.
__device__ __forceinline__ double logarithm(double x) {
  const double terms[10] = {2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3};
  long long bits = __double_as_longlong(x);
  int k = (int)(bits >> 52) - 1022;
  double f = __longlong_as_double((bits & ((1ll << 52) - 1)) | 1022ll << 52);
  if (f < 0.70710678118654752440) { f *= 2; k--; }
  f -= 1;
  double s = f / (2 + f), z = s * s, t = terms[0];
  #pragma unroll
  for (int i = 1; i < 10; i++) t = t * z + terms[i];
  t *= z;
  double h = f * f / 2, n = k;
  return n * 6.93147180369123816490e-01 - ((h - (s * (h + t) + n * 1.90821492927058770002e-10)) - f); // ln 2 in two parts
}

// norm is the logarithm of the sum of exponentials.
__device__ __forceinline__ double norm(Shared& s, const float* row, int n) {
  double top = highest(s, row, n, false), sum;
  if (!(top - top == 0)) return top;
  inLanes<1>(s, n, &sum, [&](double* x, int i) { x[0] = within((double)row[i] - top); });
  return top + logarithm(sum);
}

// divergences computes those of rows q from rows p.
extern "C" __global__ void __launch_bounds__(THREADS) divergences(double* kl, const float* p, const float* q, int n) {
  __shared__ Shared s;
  p += (size_t)blockIdx.x * n;
  q += (size_t)blockIdx.x * n;
  double normP = norm(s, p, n), shift = norm(s, q, n) - normP, sum;
  inLanes<1>(s, n, &sum, [&](double* x, int i) {
    double v = p[i], d = v - normP;
    x[0] = d < -60 ? 0 : exact(d) * ((v - (double)q[i]) + shift);
  });
  if (threadIdx.x == 0) kl[blockIdx.x] = sum <= 0 ? 0 : sum;
}

// labels draws a label for a row at a place of its softmax, and replaces the row by the softmax less 1 at the label. squares are the sums of the
// squared probabilities, not a number for rows without a softmax.
extern "C" __global__ void __launch_bounds__(THREADS) labels(double* squares, float* rows, const double* at, int n) {
  __shared__ Shared s;
  __shared__ int label;
  int t = threadIdx.x;
  float* row = rows + (size_t)blockIdx.x * n;
  double top = highest(s, row, n, false), sums[2], place = at[blockIdx.x];
  if (!(top - top == 0)) {
    if (t == 0) squares[blockIdx.x] = top - top;
    return;
  }
  inLanes<2>(s, n, sums, [&](double* x, int i) {
    x[0] = within((double)row[i] - top);
    x[1] = (float)x[0];
  });
  double norm = top + logarithm(sums[0]), factor = 1 / sums[1], sum = 0, square = 0;
  int before = 0; // tokens until which the sum is not above the place
  inOrder(s, n, TERMS, [&](double* terms, int i, int at) { terms[i] = exact((double)row[at] - norm); }, [&](const double* terms, int, int m) {
    if (t > 0) return;
    #pragma unroll 8
    for (int i = 0; i < m; i++) {
      double p = terms[i];
      sum += p;
      square += p * p;
      before += sum > place ? 0 : 1;
    }
  });
  if (t == 0) {
    squares[blockIdx.x] = square;
    label = before < n ? before : n - 1;
  }
  __syncthreads();
  for (int i = t; i < n; i += THREADS) {
    float x = (float)((double)(float)within((double)row[i] - top) * factor);
    row[i] = i == label ? __fadd_rn(x, -1.f) : x;
  }
}

// draws draws a token of a row at a fraction of the sum of its exponentials, or -1 if a logit is not finite. sums has room for those of the blocks.
extern "C" __global__ void __launch_bounds__(THREADS) draws(int* tokens, const float* rows, const double* at, double* sums, int n) {
  __shared__ Shared s;
  __shared__ int last;
  __shared__ double rest;
  int t = threadIdx.x, blocks = (n + DRAW_BLOCK - 1) / DRAW_BLOCK;
  const float* row = rows + (size_t)blockIdx.x * n;
  sums += (size_t)blockIdx.x * blocks;
  double top = highest(s, row, n, true);
  if (top != top) {
    if (t == 0) tokens[blockIdx.x] = -1;
    return;
  }
  inOrder(s, n, TERMS, [&](double* terms, int i, int at) { terms[i] = within((double)row[at] - top); }, [&](const double* terms, int lo, int m) {
    if (t >= 32) return; // a warp adds four blocks
    double sum = 0;
    int from = t / 8 * DRAW_BLOCK, to = from + DRAW_BLOCK < m ? from + DRAW_BLOCK : m;
    #pragma unroll 8
    for (int i = from + t % 8; i < to; i += 8) sum += terms[i];
    s.sums[t] = sum;
    __syncwarp();
    if (t % 8 == 0 && from < m) sums[lo / DRAW_BLOCK + t / 8] = lanes(s.sums + t);
    __syncwarp();
  });
  if (t == 0) {
    double total = 0;
    #pragma unroll 8
    for (int i = 0; i < blocks; i++) total += sums[i];
    rest = at[blockIdx.x] * total;
    last = 0;
    for (int i = 0; i < blocks; i++) {
      if (sums[i] == 0) continue;
      last = i;
      if (rest < sums[i]) break;
      rest -= sums[i];
    }
  }
  __syncthreads();
  int first = last * DRAW_BLOCK, m = n - first < DRAW_BLOCK ? n - first : DRAW_BLOCK;
  if (t < m) s.terms[0][t] = exact((double)row[first + t] - top);
  __syncthreads();
  if (t == 0) {
    int picked = first;
    double left = rest, best = -__longlong_as_double(0x7ffll << 52);
    for (int i = 0; i < m; i++) {
      double p = s.terms[0][i];
      if (p > 0 && left < p) {
        picked = first + i;
        break;
      }
      left -= p;
      if (p > best) {
        picked = first + i;
        best = p;
      }
    }
    tokens[blockIdx.x] = picked;
  }
}
