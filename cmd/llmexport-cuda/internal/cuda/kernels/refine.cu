// The refinement of gptq (quant/refine.go), with its roundings and orders of sums. For a panel of columns, `slopes` computes gradients and
// what fits need of codes, with a block of threads for 32 rows; `moves` moves rows one after the other, with a block for a run of rows;
// `spread` passes the changes on to the errors of all rows. While rows move on the CPU, `aheads` computes what the gradients of the next panel
// have from segments of columns that do not move.

struct Run {
  float *pulled, *gradient, *kq, *change; // [rows, cols], and [rows, columns of a panel]; kq is null if rows move on the CPU
  float* ahead;                           // [segments, rows, columns of a panel]: sums of segments, see aheads
  double* fits;                           // [rows, 4], see fit.curve, and the inverses of the curve of the row and of a determinant
  unsigned char* code;                    // [rows, cols]
  float *scale, *zero;                    // zero is null for symmetric grids
  const float* outputs;                   // [rows, rows]
  int* moved;                             // whether anything moved in a sweep, for each; at last whether it did in the present panel
  long long rows;
};

struct Refinement {
  const Run* runs;
  const float *hessian, *sums;
  const double* totals;
  int cols, pitch, block, sweeps, bits, half; // pitch is that of the Hessian
  float ridge;
  int wide; // whether a block of threads has the shared memory for the square of a wide panel
};

// over is whether a run has nothing to do in a sweep.
__device__ __forceinline__ bool over(Run u, int sweep) { return sweep > 0 && !u.moved[sweep - 1]; }

// damped is element (p, j) of the square of the damped Hessian whose first element is *h.
__device__ __forceinline__ float damped(Refinement k, const float* h, int p, int j) {
  float v = h[(size_t)p * k.pitch + j];
  return p == j ? v + k.ridge : v;
}

// aheads computes sums of gradients of a panel that begins with column lo, segment by segment, but for one. Blocks have 32 rows and a segment of a run.
extern "C" __global__ void __launch_bounds__(THREADS) aheads(Refinement k, int lo, int but) {
  __shared__ Tiles tiles;
  __shared__ float sums[ROWS][STRIDE];
  int n = k.cols, width = k.block, segments = (n + SEGMENT - 1) / SEGMENT, segment = blockIdx.y % segments, at = segment * SEGMENT;
  Run u = k.runs[blockIdx.y / segments];
  int first = blockIdx.x * ROWS, rows = u.rows - first < ROWS ? u.rows - first : ROWS;
  if (rows <= 0 || segment == but) return;
  product(sums, &tiles, u.pulled + (size_t)first * n + at, n, rows, k.hessian + (size_t)at * k.pitch + lo, k.pitch, width, n - at < SEGMENT ? n - at : SEGMENT);
  int r = threadIdx.x / LANES;
  float* to = u.ahead + ((size_t)segment * u.rows + first + r) * width;
  for (int j = threadIdx.x % LANES; r < rows && j < width; j += LANES) to[j] = sums[r][j];
}

// slopes computes all sums of gradients, or, if `but` is a segment, those of this one, to which those that aheads has made are added in their order.
extern "C" __global__ void __launch_bounds__(THREADS) slopes(Refinement k, int lo, int sweep, int but) {
  __shared__ Tiles tiles;
  __shared__ float sums[ROWS][STRIDE], code[ROWS][STRIDE];
  Run u = k.runs[blockIdx.y];
  int first = blockIdx.x * ROWS, rows = u.rows - first < ROWS ? u.rows - first : ROWS, n = k.cols, width = k.block;
  if (rows <= 0 || over(u, sweep)) return;
  int r = threadIdx.x / LANES, l = threadIdx.x % LANES, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  size_t row = first + r, to = row * width;
  const float* h = k.hessian + lo;
  int at = but < 0 ? 0 : but * SEGMENT, segments = (n + SEGMENT - 1) / SEGMENT;
  product(sums, &tiles, u.pulled + (size_t)first * n + at, n, rows, h + (size_t)at * k.pitch, k.pitch, width, but < 0 ? n : n - at < SEGMENT ? n - at : SEGMENT);
  float mid = (float)(1 << (k.bits - 1));
  for (int j = l; r < rows && j < width; j += LANES) {
    float sum = sums[r][j];
    if (but >= 0) {
      float present = sum;
      for (int s = 0; s < segments; s++) {
        float x = s == but ? present : u.ahead[((size_t)s * u.rows + row) * width + j];
        sum = s ? __fadd_rn(sum, x) : x;
      }
    }
    u.gradient[to + j] = sum + u.pulled[row * n + lo + j] * k.ridge;
    if (u.kq) code[r][j] = (float)u.code[row * n + lo + j] - mid;
  }
  if (!u.kq) return;
  __syncthreads();
  // The products of codes with the square: a warp has four rows.
  h += (size_t)lo * k.pitch;
  for (int j = lane; j < width; j += 32) {
    float s[4] = {0.f, 0.f, 0.f, 0.f};
    #pragma unroll 4
    for (int p = 0; p < width; p++) {
      float v = damped(k, h, p, j);
      #pragma unroll
      for (int i = 0; i < 4; i++) s[i] = __fmaf_rn(code[4 * warp + i][p], v, s[i]);
    }
    #pragma unroll
    for (int i = 0; i < 4; i++) sums[4 * warp + i][j] = s[i];
  }
  __syncthreads();
  for (int j = l; r < rows && j < width; j += LANES) u.kq[to + j] = sums[r][j];
  if (r < rows && l < 2) {
    double f = 0;
    for (int j = 0; j < width; j++) f += (double)code[r][j] * (double)(l ? k.sums[lo + j] : sums[r][j]);
    u.fits[row * 4 + l] = f;
  }
  __syncwarp();
  if (r < rows && l == 2) u.fits[row * 4 + 2] = 1 / (double)u.outputs[row * u.rows + row];
  if (r < rows && l == 3) u.fits[row * 4 + 3] = 1 / determinant(u.zero, u.fits[row * 4], u.fits[row * 4 + 1], k.totals[lo / width]);
}

// ordinary is whether products with x and its inverse are neither infinite nor denormal.
__device__ __forceinline__ bool ordinary(float x) { return x >= 0x1p-40f && x <= 0x1p40f; }

// Barriers of the warps that move rows: the gradient of the next row is there, and the changes of 32 columns of the present one.
enum { GRADIENT = 1, CHANGE };

// Moving is what the threads of `moves` share.
struct Moving {
  float4 values[2 * WIDEST * (ROWS / 4 + 1)]; // see Panel
  float4 outputs[THREADS / 32][ROWS];         // of a warp, 4 rows of 32
  float4 couplings[ROWS][ROWS / 4 + 1];       // of every row of a panel of rows with those after it
  float4 change[WIDEST / 4];
  float gradient[WIDEST]; // of the row whose turn it is
  double terms[2][WIDEST];
  unsigned rows[2]; // which rows of the present panel and of the one before have moved
  int any;          // whether the present row has
};

// Panel is a panel of 32 C columns at most: a lane has every 32nd of them. The square is in shared memory if there is room: beside the
// changes of rows, or where these need all of that in memory that the launch adds.
//
// The first warp decides how rows move. C warps have 32 columns each: they add up what the changes of the row whose turn it is do to these
// columns while the next 32 columns are decided, and keep the gradients of the rows after it. The others tell the rows below the panel of
// rows what the panel before did.
template <int C> struct Panel {
  static const int TEAM = 32 * (C + 1); // threads that move a row
  Refinement k;
  Run u;
  Moving* s;
  const float* h; // the square
  int lo, width, lane, warp;
  __device__ __forceinline__ Panel(Refinement k, Run u, Moving* s, int lo)
      : k(k), u(u), s(s), h(k.hessian + (size_t)lo * k.pitch + lo), lo(lo), width(k.block), lane(threadIdx.x % 32), warp(threadIdx.x / 32) {}

  __device__ __forceinline__ float* kept() { return C <= 2 ? (float*)s->values : (float*)added(); }
  // turned are the changes of rows times the square, by column, of the panel of rows whose turn it is. The columns of a warp lie in unlike
  // banks.
  __device__ __forceinline__ float4* turned(int turn, int c) {
    return s->values + (C <= 2 ? 32 * C * 32 * C / 4 : 0) + ((turn * C + c) * 32 + lane) * (ROWS / 4 + 1);
  }
  __device__ __forceinline__ bool keeps() { return C <= 2 || k.wide; }
  __device__ __forceinline__ float square(int p, int j) { return keeps() ? kept()[p * 32 * C + j] : damped(k, h, p, j); }
  __device__ __forceinline__ void keep() {
    if (keeps())
      for (int i = threadIdx.x; i < width * 32 * C; i += THREADS)
        if (i % (32 * C) < width) kept()[i] = damped(k, h, i / (32 * C), i % (32 * C));
  }

  // Pushed are four rows that a warp pushes: of the moments with the rows that moved a lane has one, of the gradients every 32nd column.
  struct Pushed { float outputs[4], gradient[4][C]; };
  __device__ __forceinline__ Pushed pushed(int from, int row, int hi) {
    Pushed x;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      bool in = row + i < hi;
      x.outputs[i] = in ? u.outputs[(size_t)(row + i) * u.rows + from + lane] : 0.f;
      #pragma unroll
      for (int c = 0; c < C; c++) x.gradient[i][c] = in && c * 32 + lane < width ? u.gradient[(size_t)(row + i) * width + c * 32 + lane] : 0.f;
    }
    return x;
  }

  // push adds to the gradients of rows lo to hi-1 what the moves of the 32 rows from `from` on do to them. `warps` warps share the rows.
  __device__ __forceinline__ void push(int from, int turn, int lo, int hi, int w, int warps) {
    Pushed next = pushed(from, lo + 4 * w, hi);
    for (int row = lo + 4 * w; row < hi; row += 4 * warps) {
      Pushed x = next;
      next = pushed(from, row + 4 * warps, hi); // they come meanwhile
      float sum[4][C];
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        ((float*)s->outputs[warp])[i * ROWS + lane] = x.outputs[i];
        #pragma unroll
        for (int c = 0; c < C; c++) sum[i][c] = 0.f;
      }
      __syncwarp();
      #pragma unroll 2
      for (int q = 0; q < ROWS / 4; q++) {
        float4 v[C];
        #pragma unroll
        for (int c = 0; c < C; c++) v[c] = turned(turn, c)[q];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          float4 y = s->outputs[warp][i * ROWS / 4 + q];
          #pragma unroll
          for (int c = 0; c < C; c++) {
            sum[i][c] = __fmaf_rn(y.x, v[c].x, sum[i][c]); sum[i][c] = __fmaf_rn(y.y, v[c].y, sum[i][c]);
            sum[i][c] = __fmaf_rn(y.z, v[c].z, sum[i][c]); sum[i][c] = __fmaf_rn(y.w, v[c].w, sum[i][c]);
          }
        }
      }
      float* g = u.gradient + (size_t)row * width + lane;
      #pragma unroll
      for (int i = 0; i < 4; i++)
        #pragma unroll
        for (int c = 0; c < C; c++)
          if (row + i < hi && c * 32 + lane < width) g[i * width + c * 32] = x.gradient[i][c] + sum[i][c];
      __syncwarp();
    }
  }

  // Row is what a warp needs to move a row, besides its gradient.
  struct Row {
    float kq[C], code[C], scale, zero, curve;
    double fits[4];
  };
  __device__ __forceinline__ Row row(int from, int r, int blocks) {
    Row x;
    size_t row = from + r, at = row * blocks + lo / width;
    #pragma unroll
    for (int c = 0; c < C; c++) {
      int j = c * 32 + lane;
      bool in = j < width;
      x.kq[c] = in ? u.kq[row * width + j] : 0.f;
      x.code[c] = in ? (float)u.code[row * k.cols + lo + j] : 0.f;
    }
    x.scale = u.scale[at];
    x.zero = u.zero ? u.zero[at] : 0.f;
    x.curve = u.outputs[row * u.rows + row];
    #pragma unroll
    for (int i = 0; i < 4; i++) x.fits[i] = u.fits[row * 4 + i];
    return x;
  }

  // slopes are the sums of fit.slope, of gradients times codes in lane 0 and of gradients in lane 16. Where gradients are of like sizes all
  // sums of some of them are exact, and the order does not matter. Those outside the panel are 0, or nothing is exact.
  __device__ __forceinline__ double slopes(const double* code, const float* g) {
    unsigned least = ~0u, most = 0;
    double f[2] = {0, 0};
    #pragma unroll
    for (int c = 0; c < C; c++) {
      unsigned size = __float_as_uint(g[c]) & 0x7fffffffu;
      if (size && size < least) least = size;
      if (size > most) most = size;
      f[0] += code[c] * (double)g[c];
      f[1] += (double)g[c];
    }
    least = __reduce_min_sync(~0u, least);
    most = __reduce_max_sync(~0u, most);
    double sum = 0;
    // Codes of 8 bits times 2^24 steps of the least gradient's, in 128 columns: 53 bits.
    if (most < 0x7f800000u && (int)(most >> 23) - (int)(least >> 23) <= 15) {
      double other = __shfl_xor_sync(~0u, lane < 16 ? f[1] : f[0], 16);
      sum = (lane < 16 ? f[0] : f[1]) + other;
      #pragma unroll
      for (int i = 8; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
    } else {
      #pragma unroll
      for (int c = 0; c < C; c++) {
        s->terms[0][c * 32 + lane] = code[c] * (double)g[c];
        s->terms[1][c * 32 + lane] = (double)g[c];
      }
      __syncwarp();
      for (int j = 0; lane % 16 == 0 && j < width; j++) sum += s->terms[lane / 16][j];
      __syncwarp();
    }
    return 0 + sum;
  }

  // decide moves the rows of a panel of rows, one after the other, with a warp, and returns which have moved.
  __device__ __forceinline__ unsigned decide(int from) {
    Descent d;
    d.half = k.half;
    d.zero = u.zero;
    int count = u.rows - from < ROWS ? u.rows - from : ROWS, blocks = k.cols / width;
    float sums[C], diagonal[C], flats[C];
    float mid = (float)(1 << (k.bits - 1)), least = -mid, most = mid - 1, unknown = __uint_as_float(0x7fffffffu);
    double total = k.totals[lo / width], ones = 1 / total;
    #pragma unroll
    for (int c = 0; c < C; c++) {
      int j = c * 32 + lane;
      sums[c] = j < width ? k.sums[lo + j] : 0.f;
      diagonal[c] = j < width ? square(j, j) : 0.f;
      flats[c] = ordinary(diagonal[c]) ? 1.f / diagonal[c] : unknown;
    }
    unsigned moved = 0;
    Row next = row(from, 0, blocks);
    for (int r = 0; r < count; r++) {
      Row x = next;
      if (r + 1 < count) next = row(from, r + 1, blocks); // it comes meanwhile
      float g[C], before[C];
      double codes[C], inverses[2] = {ones, x.fits[3]};
      #pragma unroll
      for (int c = 0; c < C; c++) {
        x.code[c] -= mid;
        codes[c] = x.code[c];
        before[c] = x.scale * x.code[c] + x.zero;
      }
      meet(GRADIENT, TEAM);
      #pragma unroll
      for (int c = 0; c < C; c++) g[c] = s->gradient[c * 32 + lane];
      // The scale and the zero term.
      double slope = quotient(slopes(codes, g), x.curve, x.fits[2]);
      double f[4] = {__shfl_sync(~0u, slope, 0), __shfl_sync(~0u, slope, 16), x.fits[0], x.fits[1]};
      float scale = x.scale, zero = x.zero;
      bool any = solve(d, f, total, inverses, &scale, &zero);
      if (any) {
        float by = (scale - x.scale) * x.curve, more = (zero - x.zero) * x.curve;
        #pragma unroll
        for (int c = 0; c < C; c++) {
          g[c] += x.kq[c] * by;
          g[c] += sums[c] * more;
        }
      }
      // The codes, 32 columns at a time. Until one moves all of these decide at once; the first that moves does, and those after it decide again.
      float inverse = 1.f / scale, flat = (float)x.fits[2] * inverse, q[C];
      if (!ordinary(x.curve) || !ordinary(fabsf(scale))) flat = unknown;
      #pragma unroll
      for (int c = 0; c < C; c++) q[c] = x.code[c];
      #pragma unroll
      for (int c = 0; c < C; c++) {
        for (int start = 0; start < 32 && c * 32 + start < width;) {
          // A step is off by less than a thousandth, unless it is so large that the code becomes the least or the most.
          float step = g[c] * flats[c] * flat, to = q[c] - step, whole = __fadd_rn(__fadd_rn(to, 0x1.8p23f), -0x1.8p23f);
          float best = fminf(fmaxf(whole, least), most), by = scale * (best - q[c]);
          float bend = by * (x.curve * diagonal[c]), slope = 2 * g[c] + bend;
          bool in = lane >= start && c * 32 + lane < width, other = in && best != q[c];
          bool better = other && (by < 0 ? slope > 0 : slope < 0);
          // Is the code, and the sign of what it changes, what exact numbers say?
          bool sure = fabsf(to - whole) < 0.499f || fabsf(step) > 1024.f;
          bool sign = fabsf(bend) >= 0x1p-60f && fabsf(slope) > fabsf(bend) * 0x1p-20f && fabsf(slope) < 0x1p100f;
          if (in && !sure || other && !sign) {
            float bend = x.curve * diagonal[c];
            best = nearest(q[c] - g[c] / bend * inverse, least, most);
            by = scale * (best - q[c]);
            better = in && best != q[c] && (double)by * (2 * (double)g[c] + (double)by * (double)bend) < 0;
          }
          unsigned those = __ballot_sync(~0u, better);
          if (!those) break;
          int i = __ffs(those) - 1;
          float factor = __shfl_sync(~0u, by * x.curve, i);
          if (lane == i) q[c] = best;
          if (lane > i && c * 32 + lane < width) g[c] += square(c * 32 + i, c * 32 + lane) * factor;
          #pragma unroll
          for (int d = c + 1; d < C; d++)
            if (d * 32 + lane < width) g[d] += square(c * 32 + i, d * 32 + lane) * factor;
          start = i + 1;
          any = true;
        }
        ((float*)s->change)[c * 32 + lane] = scale * q[c] + zero - before[c];
        if (c == C - 1 && lane == 0) s->any = any;
        arrive(CHANGE + c, TEAM);
      }
      // What has changed.
      size_t row = from + r;
      #pragma unroll
      for (int c = 0; c < C; c++) {
        int j = c * 32 + lane;
        if (j >= width) continue;
        u.change[row * width + j] = any ? scale * q[c] + zero - before[c] : 0.f;
        if (any) u.code[row * k.cols + lo + j] = (unsigned char)(q[c] + mid);
      }
      if (any && lane == 0) {
        u.scale[row * blocks + lo / width] = scale;
        if (u.zero) u.zero[row * blocks + lo / width] = zero;
      }
      if (any) moved |= 1u << r;
    }
    return moved;
  }

  // tell has 32 columns of a panel of rows: it turns their changes, and keeps the gradients of the rows after the one whose turn it is.
  __device__ __forceinline__ void tell(int from, int turn, int part, const float* column) {
    int count = u.rows - from < ROWS ? u.rows - from : ROWS, j = part * 32 + lane;
    float g[ROWS + 1], *to = (float*)turned(turn, part);
    #pragma unroll
    for (int i = 0; i <= ROWS; i++) g[i] = i < count && j < width ? u.gradient[(size_t)(from + i) * width + j] : 0.f;
    s->gradient[j] = g[0];
    arrive(GRADIENT, TEAM);
    for (int r = 0; r < count; r++) {
      float sum = 0.f;
      #pragma unroll
      for (int c = 0; c < C; c++) {
        meet(CHANGE + c, TEAM);
        const float* x = column + c * 32;
        float4* v = s->change + c * 8;
        if (c * 32 + 32 <= width)
          #pragma unroll
          for (int p = 0; p < 32; p += 4) {
            float4 y = v[p / 4];
            sum = __fmaf_rn(y.x, x[p], sum); sum = __fmaf_rn(y.y, x[p + 1], sum);
            sum = __fmaf_rn(y.z, x[p + 2], sum); sum = __fmaf_rn(y.w, x[p + 3], sum);
          }
        else
          #pragma unroll 1
          for (int p = c * 32; p < width; p++) sum = __fmaf_rn(((float*)s->change)[p], j < width ? square(p, j) : 0.f, sum);
      }
      bool any = s->any;
      const float4* couplings = s->couplings[r];
      #pragma unroll
      for (int i = 0; i < ROWS; i += 4) {
        float4 x = couplings[i / 4];
        g[i] = any ? g[i + 1] + sum * x.x : g[i + 1];
        if (i == 0 && r + 1 < count) { // the next row waits for it
          s->gradient[j] = g[0];
          arrive(GRADIENT, TEAM);
        }
        if (i + 2 <= ROWS) g[i + 1] = any ? g[i + 2] + sum * x.y : g[i + 2];
        if (i + 3 <= ROWS) g[i + 2] = any ? g[i + 3] + sum * x.z : g[i + 3];
        if (i + 4 <= ROWS) g[i + 3] = any ? g[i + 4] + sum * x.w : g[i + 4];
      }
      to[r] = any ? sum : 0.f;
    }
  }

  // each calls f for every panel of rows, when their gradients are known. The warps with columns, which have no registers left, do not push.
  template <bool PUSHES, class F> __device__ __forceinline__ void each(F f) {
    for (int from = 0, turn = 0; from < u.rows; from += ROWS, turn ^= 1) {
      int before = from - ROWS, below = from + ROWS < u.rows ? from + ROWS : (int)u.rows;
      bool known = from == 0 || !s->rows[turn ^ 1];
      if (PUSHES && !known) push(before, turn ^ 1, from, below, warp ? warp - C : 0, THREADS / 32 - C);
      for (int i = threadIdx.x; i < ROWS * ROWS; i += THREADS) {
        int row = from + i / ROWS, to = row + 1 + i % ROWS;
        ((float*)s->couplings[i / ROWS])[i % ROWS] = to < below ? u.outputs[(size_t)to * u.rows + row] : 0.f;
      }
      __syncthreads();
      f(from, below, turn, known);
      __syncthreads();
    }
  }

  // all moves all rows.
  __device__ __forceinline__ void all(int sweep) {
    const int others = THREADS / 32 - C - 1;
    keep();
    if (warp == 0) {
      unsigned any = 0;
      each<true>([&](int from, int below, int turn, bool known) {
        unsigned moved = decide(from);
        any |= moved;
        if (lane == 0) s->rows[turn] = moved;
      });
      if (lane) return;
      u.moved[k.sweeps] = any != 0;
      if (any) u.moved[sweep] = 1;
    } else if (warp <= C) {
      float column[32 * C];
      int j = (warp - 1) * 32 + lane;
      #pragma unroll
      for (int p = 0; p < 32 * C; p++) column[p] = p < width && j < width ? damped(k, h, p, j) : 0.f;
      each<false>([&](int from, int below, int turn, bool known) { tell(from, turn, warp - 1, column); });
    } else {
      each<true>([&](int from, int below, int turn, bool known) {
        if (!known) push(from - ROWS, turn ^ 1, below, u.rows, warp - C - 1, others);
      });
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) moves(Refinement k, int lo, int sweep) {
  __shared__ Moving s;
  Run u = k.runs[blockIdx.x];
  if (over(u, sweep)) return;
  if (k.block <= 64) Panel<2>(k, u, &s, lo).all(sweep);
  else Panel<4>(k, u, &s, lo).all(sweep);
}

extern "C" __global__ void __launch_bounds__(THREADS) spread(Refinement k, int lo, int sweep) {
  __shared__ Tiles tiles;
  __shared__ float sums[ROWS][STRIDE];
  Run u = k.runs[blockIdx.y];
  int first = blockIdx.x * ROWS, rows = u.rows - first < ROWS ? u.rows - first : ROWS, width = k.block;
  if (rows <= 0 || over(u, sweep) || !u.moved[k.sweeps]) return;
  product(sums, &tiles, u.outputs + (size_t)first * u.rows, u.rows, rows, u.change, width, width, u.rows);
  int r = threadIdx.x / LANES;
  float* to = u.pulled + (size_t)(first + r) * k.cols + lo;
  for (int j = threadIdx.x % LANES; r < rows && j < width; j += LANES) to[j] += sums[r][j];
}
