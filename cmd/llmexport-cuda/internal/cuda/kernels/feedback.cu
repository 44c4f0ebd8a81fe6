// The feedback of gptq (quant/feedback.go) with the search of grids (quant/searchgrid.go), with their roundings and orders of sums. A
// block of threads takes 16 rows through all blocks of columns, from the last position to the first: a product hands the errors of
// the positions behind on, a warp searches the grids of its two rows, a grid in a thread, then positions are rounded one after the
// other, a position in a thread. Rows that do not exist compute with zeros, and write nothing.

#define FEED_ROWS 16
#define FEED_PANEL 32     // feedbackPanel
#define MOST_LANES 4      // grids of a thread
#define POLISH_LANES 31
#define LONGEST 128       // block

struct Feedback {
  float *work, *code, *scale, *zero; // zero is null for symmetric grids
  const float *factor, *importance;
  const int* order;
  int* failed; // set where numbers left the range of float32
  int rows, cols, pitch, block, candidates, bits, half;
};

struct FeedShared {
  float x[FEED_ROWS][STRIDE]; // what is left of a block, later the errors
  float normal[8][LONGEST];   // a row of each warp, normalised
  float importance[LONGEST];  // of the block, the largest is 1
  float panel[FEED_PANEL][FEED_PANEL + 1];
  alignas(16) float a[FEED_ROWS][DEPTH + 4]; // factors of a product
  float b[DEPTH][COLUMNS];
  double errors[8][32];
  int lanes[8][32];
  float scales[8][32], zeros[8][32];
  double sum; // of importance
  int bad;
};

// pull subtracts from positions c to c+63 of the block of all rows what the errors of the k positions behind it contribute: the sums
// of MatMul.
__device__ __forceinline__ void pull(FeedShared* s, const float* a, int lda, int rows, const float* h, int ldh, int c, int width, int k) {
  int t = threadIdx.x, warp = t / 32, lane = t % 32, column = c + t % COLUMNS;
  float sum[2][2], part[2][2], x[2], y[8];
  #pragma unroll
  for (int i = 0; i < 2; i++) part[i][0] = part[i][1] = sum[i][0] = sum[i][1] = 0.f;
  for (int p = -DEPTH; p < k; p += DEPTH) {
    // The next factors come while the sums of those in shared memory are made.
    int next = p + DEPTH;
    if (next < k) {
      #pragma unroll
      for (int i = 0; i < 2; i++) x[i] = i * 8 + warp < rows && next + lane < k ? a[(size_t)(i * 8 + warp) * lda + next + lane] : 0.f;
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        int q = next + i * (THREADS / COLUMNS) + t / COLUMNS;
        y[i] = column < width && q < k ? h[(size_t)q * ldh + column] : 0.f;
      }
    }
    if (p >= 0) {
      int left = k - p < DEPTH ? k - p : DEPTH, q = 0;
      for (; q + 4 <= left; q += 4) {
        float4 u[2];
        #pragma unroll
        for (int i = 0; i < 2; i++) u[i] = *(float4*)&s->a[2 * warp + i][q];
        #pragma unroll
        for (int j = 0; j < 2; j++) {
          float v0 = s->b[q][lane + j * 32], v1 = s->b[q + 1][lane + j * 32], v2 = s->b[q + 2][lane + j * 32], v3 = s->b[q + 3][lane + j * 32];
          #pragma unroll
          for (int i = 0; i < 2; i++)
            part[i][j] = __fmaf_rn(u[i].w, v3, __fmaf_rn(u[i].z, v2, __fmaf_rn(u[i].y, v1, __fmaf_rn(u[i].x, v0, part[i][j]))));
        }
      }
      for (; q < left; q++)
        #pragma unroll
        for (int i = 0; i < 2; i++)
          #pragma unroll
          for (int j = 0; j < 2; j++) part[i][j] = __fmaf_rn(s->a[2 * warp + i][q], s->b[q][lane + j * 32], part[i][j]);
      if (next % SEGMENT == 0 || next >= k) {
        #pragma unroll
        for (int i = 0; i < 2; i++)
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            sum[i][j] = p < SEGMENT ? part[i][j] : __fadd_rn(sum[i][j], part[i][j]);
            part[i][j] = 0.f;
          }
      }
      __syncthreads();
    }
    if (next < k) {
      #pragma unroll
      for (int i = 0; i < 2; i++) s->a[i * 8 + warp][lane] = x[i];
      #pragma unroll
      for (int i = 0; i < 8; i++) s->b[i * (THREADS / COLUMNS) + t / COLUMNS][t % COLUMNS] = y[i];
      __syncthreads();
    }
  }
  #pragma unroll
  for (int i = 0; i < 2; i++)
    #pragma unroll
    for (int j = 0; j < 2; j++)
      if (c + lane + j * 32 < width) s->x[2 * warp + i][c + lane + j * 32] -= sum[i][j];
}

// Grid is a candidate.
struct Grid { double scale, zero, codes; };

// GridSearch is gridSearch of one block, and this thread's candidates.
struct GridSearch {
  int n, lanes, least, most;
  bool symmetric, half;
  const float *x, *p;
  double levels, mid, centre, unit, span, sumX, sum;
  float best, bestZero;
  Grid grids[MOST_LANES];
};

__device__ __forceinline__ int ordered(int bits) { return bits ^ (int)((unsigned)(bits >> 31) >> 1); }

__device__ __forceinline__ float rounded(bool half_, float v) { return half_ ? half(v) : v; }

// onGrid is nearestCode.
__device__ __forceinline__ float onGrid(float t, float least, float most) {
  t = t < least ? least : t;
  t = t > most ? most : t;
  return __fadd_rn(__fadd_rn(t, 0x1.8p23f), -0x1.8p23f);
}

// fit is gridSearch.fit for the candidates of a thread.
__device__ __forceinline__ void fit(GridSearch* g, int lanes) {
  double per = 1 / g->sum;
  float least = g->least, most = g->most;
  #pragma unroll
  for (int i = 0; i < MOST_LANES; i++) {
    if (i * 32 + threadIdx.x % 32 >= lanes) continue;
    float z = (float)g->grids[i].zero, f = (float)(1 / g->grids[i].scale), s0 = 0, s1 = 0, s2 = 0;
    for (int j = 0; j < g->n; j++) {
      float v = g->x[j], q = onGrid((v - z) * f, least, most), p = g->p[j] * q;
      s0 += p;
      s1 += p * q;
      s2 += p * v;
    }
    double c = s0, squares = s1, products = s2;
    if (g->symmetric) {
      double s = products / squares;
      if (fabs(s) > 0x1p-40 && fabs(s) < 1) g->grids[i].scale = s;
      continue;
    }
    double den = g->sum * squares - c * c, num = g->sum * products - c * g->sumX, s = num / den;
    if (den > 0 && s > 0x1p-40 && s < 1) g->grids[i].scale = s;
    g->grids[i].zero = (g->sumX - g->grids[i].scale * c) * per;
    g->grids[i].codes = c;
  }
}

// cost is GridErrors for a grid in weights.
__device__ __forceinline__ double cost(GridSearch* g, float stored, float storedZero) {
  double perUnit = 1 / g->unit;
  float scale = (float)((double)stored * perUnit), zero = (float)(((double)storedZero - g->centre) * perUnit), inverse = 1.f / scale, sum = 0;
  float least = g->least, most = g->most;
  for (int j = 0; j < g->n; j++) {
    float d = g->x[j] - zero, q = onGrid(d * inverse, least, most);
    d -= q * scale;
    float p = g->p[j] * d;
    sum += p * d;
  }
  return sum;
}

// keep is gridSearch.keep.
__device__ __forceinline__ void keep(FeedShared* s, GridSearch* g, int lanes) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  double perUnit = 1 / g->unit, per = g->unit / g->sum, error = cost(g, g->best, g->bestZero);
  s->lanes[warp][lane] = -1;
  #pragma unroll
  for (int i = 0; i < MOST_LANES; i++) {
    if (i * 32 + lane >= lanes) continue;
    float stored = rounded(g->half, (float)(g->grids[i].scale * g->unit)), zero = 0;
    if (!g->symmetric) {
      double v = (double)stored * perUnit;
      zero = rounded(g->half, (float)((g->sumX - v * g->grids[i].codes) * per + g->centre));
    }
    double size = fabs((double)stored), reach = g->unit + fabs((double)zero - g->centre);
    if (!(size >= (g->half ? 0x1p-24 : 0x1p-120) && reach < 0x1p21 * size && finite(stored) && finite(zero))) {
      stored = g->best;
      zero = g->bestZero;
    }
    double e = cost(g, stored, zero);
    if (!(e < error)) continue;
    error = e;
    s->errors[warp][lane] = e;
    s->lanes[warp][lane] = i * 32 + lane;
    s->scales[warp][lane] = stored;
    s->zeros[warp][lane] = zero;
  }
  __syncwarp();
  int best = -1;
  for (int i = 0; i < 32; i++) {
    int at = s->lanes[warp][i];
    if (at < 0) continue;
    double e = s->errors[warp][i];
    if (best < 0 || e < error || (e == error && at < s->lanes[warp][best])) {
      best = i;
      error = e;
    }
  }
  if (best >= 0) {
    g->best = s->scales[warp][best];
    g->bestZero = s->zeros[warp][best];
  }
  __syncwarp();
}

// search is searchGrids for a row of this warp.
__device__ __forceinline__ void search(FeedShared* s, Feedback d, int r, float* scale, float* zero) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = d.block;
  GridSearch g;
  g.n = n;
  g.symmetric = !d.zero;
  g.half = d.half;
  g.least = -(1 << (d.bits - 1));
  g.most = (1 << (d.bits - 1)) - 1;
  g.levels = (1 << d.bits) - 1;
  g.mid = 1 << (d.bits - 1);
  g.p = s->importance;
  g.x = s->normal[warp];
  g.sum = s->sum;
  int l = 0x7fffffff, h = -0x7fffffff - 1;
  for (int j = 0; j < n; j++) {
    int v = ordered((int)__float_as_uint(s->x[r][j]));
    l = v < l ? v : l;
    h = v > h ? v : h;
  }
  float lo = __uint_as_float((unsigned)ordered(l)), hi = __uint_as_float((unsigned)ordered(h)), mid = (float)g.mid;
  if (g.symmetric) {
    float m = -lo > hi ? lo : hi;
    g.best = rounded(d.half, m / -mid);
    if (g.best > -0x1p-120f && g.best < 0x1p-120f) g.best = 0x1p-14f;
    g.bestZero = 0;
    g.centre = 0;
    double a = -(double)lo, b = hi;
    g.span = 2 * (a > b ? a : b);
  } else {
    g.best = rounded(d.half, (hi - lo) / (float)g.levels);
    if (g.best < (d.half ? 0x1p-24f : 0x1p-125f)) g.best = 0x1p-14f;
    g.bestZero = rounded(d.half, hi == lo ? lo : lo + g.best * mid);
    g.centre = ((double)lo + (double)hi) / 2;
    g.span = (double)hi - (double)lo;
  }
  bool active = finite(g.best) && finite(g.bestZero) && g.span >= 0x1p-100 && g.span < 0x1p130;
  int e = 0;
  if (active) frexp(g.span, &e);
  g.unit = ldexp(1.0, e);
  double shrink = ldexp(1.0, -e);
  g.span *= shrink;
  for (int j = lane; j < n; j += 32) s->normal[warp][j] = active ? (float)(((double)s->x[r][j] - g.centre) * shrink) : 0.f;
  __syncwarp();
  g.sumX = 0;
  for (int j = 0; j < n; j++) g.sumX += (double)g.p[j] * (double)g.x[j];
  int kinds = g.symmetric ? 2 : 3, lanes = kinds * d.candidates, size = 0;
  while (n >> size) size++; // bits.Len
  double widest = 0.1 * g.levels * (double)(size - 3);
  #pragma unroll
  for (int i = 0; i < MOST_LANES; i++) {
    int at = i * 32 + lane, kind = at % kinds;
    double u = (double)(at / kinds) / (double)d.candidates, v = g.span / (g.levels - 0.9 + 2 * u + widest * (u * u * u));
    double z = v * g.mid, width = v * g.levels;
    g.grids[i].codes = 0;
    if (g.symmetric) {
      g.grids[i].scale = kind ? -v : v;
      g.grids[i].zero = 0;
    } else {
      g.grids[i].scale = v;
      g.grids[i].zero = kind == 0 ? z - g.span / 2 : kind == 1 ? z + g.span / 2 - width : z - width / 2 + 0.;
    }
  }
  float best = g.best, bestZero = g.bestZero;
  fit(&g, lanes);
  fit(&g, lanes);
  keep(s, &g, lanes);
  for (int round = 0; round < 2; round++) {
    g.grids[0].scale = (double)g.best / g.unit * (1 + (double)(lane - POLISH_LANES / 2) * 0.064 / g.levels);
    g.grids[0].zero = ((double)g.bestZero - g.centre) / g.unit;
    fit(&g, POLISH_LANES);
    keep(s, &g, POLISH_LANES);
  }
  *scale = active ? g.best : best;
  *zero = active ? g.bestZero : bestZero;
}

// weigh normalises the importance of the columns of a block for searches, which begin after the next __syncthreads.
__device__ __forceinline__ void weigh(FeedShared* s, const float* importance, int g) {
  for (int j = threadIdx.x; j < g; j += THREADS) {
    float top = 0;
    for (int i = 0; i < g; i++) top = importance[i] > top ? importance[i] : top;
    s->importance[j] = top > 0 ? (float)((double)importance[j] * (1 / (double)top)) : 1.f;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    s->sum = 0;
    for (int j = 0; j < g; j++) s->sum += (double)s->importance[j];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) feed(Feedback d) {
  __shared__ FeedShared s;
  int n = d.cols, g = d.block, blocks = n / g, first = blockIdx.x * FEED_ROWS, rows = d.rows - first < FEED_ROWS ? d.rows - first : FEED_ROWS;
  int t = threadIdx.x, warp = t / 32, lane = t % 32;
  float* work = d.work + (size_t)first * n;
  float least = -(float)(1 << (d.bits - 1)), most = -least - 1;
  if (t == 0) s.bad = 0;
  for (int end = n; end > 0; end -= g) {
    int start = end - g, at = d.order[start] / g;
    for (int i = t; i < FEED_ROWS * g; i += THREADS) s.x[i / g][i % g] = i / g < rows ? work[(size_t)(i / g) * n + start + i % g] : 0.f;
    weigh(&s, d.importance + start, g);
    if (end < n)
      for (int c = 0; c < g; c += COLUMNS) pull(&s, work + end, n, rows, d.factor + (size_t)end * d.pitch + start, d.pitch, c, g, n - end);
    __syncthreads();
    float scale[2], zero[2], inverse[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      int r = 2 * warp + i;
      size_t term = (size_t)(first + (r < rows ? r : 0)) * blocks + at;
      search(&s, d, r, &scale[i], &zero[i]);
      float tiny = d.half ? 0x1p-24f : 0x1p-120f;
      if (!finite(scale[i]) || !(scale[i] >= tiny || (!d.zero && scale[i] <= -tiny)) || !finite(zero[i])) {
        scale[i] = d.scale[term];
        zero[i] = d.zero ? d.zero[term] : 0.f;
      } else if (r < rows && lane == 0) {
        d.scale[term] = scale[i];
        if (d.zero) d.zero[term] = zero[i];
      }
      inverse[i] = 1.f / scale[i];
    }
    for (int hi = end; hi > start; hi -= FEED_PANEL) {
      int lo = hi - FEED_PANEL < start ? start : hi - FEED_PANEL, width = hi - lo;
      __syncthreads();
      for (int i = t; i < width * width; i += THREADS) s.panel[i / width][i % width] = d.factor[(size_t)(lo + i / width) * d.pitch + lo + i % width];
      __syncthreads();
      float mine[2], code[2];
      bool in = lane < width;
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        const float *x = s.x[2 * warp + i], *h = d.factor + (size_t)hi * d.pitch + lo + (in ? lane : 0);
        mine[i] = x[lo - start + (in ? lane : 0)];
        float sum = 0;
        for (int k = hi; k < end; k++, h += d.pitch) sum = __fmaf_rn(x[k - start], *h, sum);
        if (hi < end) mine[i] -= sum;
      }
      for (int p = width - 1; p >= 0; p--) {
        if (lane == p)
          #pragma unroll
          for (int i = 0; i < 2; i++) s.x[2 * warp + i][lo - start + p] = mine[i];
        __syncwarp();
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          float v = s.x[2 * warp + i][lo - start + p], q = nearest((v - zero[i]) * inverse[i], least, most);
          float error = (v - (scale[i] * q + zero[i])) / s.panel[p][p];
          if (lane < p) mine[i] -= error * s.panel[p][lane];
          if (lane == p) {
            mine[i] = error;
            code[i] = q;
          }
        }
      }
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        int r = 2 * warp + i;
        if (!in) continue;
        s.x[r][lo - start + lane] = mine[i];
        if (r >= rows) continue;
        work[(size_t)r * n + lo + lane] = mine[i];
        d.code[(size_t)(first + r) * n + d.order[lo + lane]] = code[i];
        if (!finite(mine[i])) s.bad = 1;
      }
    }
    __syncthreads();
  }
  if (t == 0 && s.bad) *d.failed = 1;
}
