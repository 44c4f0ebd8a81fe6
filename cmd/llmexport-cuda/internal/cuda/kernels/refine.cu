// The refinement of gptq (quant/refine.go), with its roundings and orders of sums. For a panel of columns, `slopes` computes gradients and
// what fits need of codes, with a block of threads for 32 rows; `moves` moves rows one after the other, with a block for a run of rows;
// `spread` passes the changes on to the errors of all rows.

struct Run {
  float *pulled, *gradient, *kq, *change; // [rows, cols], and [rows, columns of a panel]
  double* fits;                           // [rows, 2], see fit.curve
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

extern "C" __global__ void __launch_bounds__(THREADS) slopes(Refinement k, int lo, int sweep) {
  __shared__ Tiles tiles;
  __shared__ float sums[ROWS][STRIDE], code[ROWS][STRIDE];
  Run u = k.runs[blockIdx.y];
  int first = blockIdx.x * ROWS, rows = u.rows - first < ROWS ? u.rows - first : ROWS, n = k.cols, width = k.block;
  if (rows <= 0 || over(u, sweep)) return;
  int r = threadIdx.x / LANES, l = threadIdx.x % LANES, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  size_t row = first + r, to = row * width;
  const float* h = k.hessian + lo;
  product(sums, &tiles, u.pulled + (size_t)first * n, n, rows, h, k.pitch, width, n);
  float mid = (float)(1 << (k.bits - 1));
  for (int j = l; r < rows && j < width; j += LANES) {
    u.gradient[to + j] = sums[r][j] + u.pulled[row * n + lo + j] * k.ridge;
    code[r][j] = (float)u.code[row * n + lo + j] - mid;
  }
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
    u.fits[row * 2 + l] = f;
  }
}

// ordinary is whether products with x and its inverse are neither infinite nor denormal.
__device__ __forceinline__ bool ordinary(float x) { return x >= 0x1p-40f && x <= 0x1p40f; }

// Moving is what the threads of `moves` share.
struct Moving {
  float4 values[2 * WIDEST * (ROWS / 4 + 1)]; // see Panel
  float4 outputs[THREADS / 32][ROWS];   // of a warp, 4 rows of 32
  float4 change[WIDEST / 4];
  double terms[2][WIDEST];
  unsigned rows[2]; // which rows of the present panel and of the one before have moved
};

// Panel is a panel of 32 C columns at most: a lane has every 32nd of them. The square is in shared memory if it is KEPT there: beside the
// changes of rows, or where these need all of that in memory that the launch adds.
template <int C, bool KEPT> struct Panel {
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
  __device__ __forceinline__ float square(int p, int j) { return KEPT ? kept()[p * 32 * C + j] : damped(k, h, p, j); }
  __device__ __forceinline__ void keep() {
    if (KEPT)
      for (int i = threadIdx.x; i < width * 32 * C; i += THREADS)
        if (i % (32 * C) < width) kept()[i] = damped(k, h, i / (32 * C), i % (32 * C));
  }

  // push adds to the gradients of rows lo to hi-1 what the moves of the 32 rows from `from` on do to them. `warps` warps share the rows.
  __device__ __forceinline__ void push(int from, int turn, int lo, int hi, int w, int warps) {
    for (int row = lo + 4 * w; row < hi; row += 4 * warps) {
      #pragma unroll
      for (int i = 0; i < 4; i++)
        ((float*)s->outputs[warp])[i * ROWS + lane] = row + i < hi ? u.outputs[(size_t)(row + i) * u.rows + from + lane] : 0.f;
      float sum[4][C], before[4][C]; // before comes meanwhile
      float* g = u.gradient + (size_t)row * width + lane;
      #pragma unroll
      for (int i = 0; i < 4; i++)
        #pragma unroll
        for (int c = 0; c < C; c++) {
          sum[i][c] = 0.f;
          before[i][c] = row + i < hi && c * 32 + lane < width ? g[i * width + c * 32] : 0.f;
        }
      __syncwarp();
      #pragma unroll 2
      for (int q = 0; q < ROWS / 4; q++) {
        float4 v[C];
        #pragma unroll
        for (int c = 0; c < C; c++) v[c] = turned(turn, c)[q];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          float4 x = s->outputs[warp][i * ROWS / 4 + q];
          #pragma unroll
          for (int c = 0; c < C; c++) {
            sum[i][c] = __fmaf_rn(x.x, v[c].x, sum[i][c]); sum[i][c] = __fmaf_rn(x.y, v[c].y, sum[i][c]);
            sum[i][c] = __fmaf_rn(x.z, v[c].z, sum[i][c]); sum[i][c] = __fmaf_rn(x.w, v[c].w, sum[i][c]);
          }
        }
      }
      #pragma unroll
      for (int i = 0; i < 4; i++)
        #pragma unroll
        for (int c = 0; c < C; c++)
          if (row + i < hi && c * 32 + lane < width) g[i * width + c * 32] = before[i][c] + sum[i][c];
      __syncwarp();
    }
  }

  // Row is what a warp needs to move a row.
  struct Row {
    float gradient[C], kq[C], code[C], scale, zero, curve, coupling; // the coupling with row `lane` of the panel of rows
    double fits[2];
  };
  __device__ __forceinline__ Row row(int from, int r, int blocks) {
    Row x;
    size_t row = from + r, at = row * blocks + lo / width;
    #pragma unroll
    for (int c = 0; c < C; c++) {
      int j = c * 32 + lane;
      bool in = j < width;
      x.gradient[c] = in ? u.gradient[row * width + j] : 0.f;
      x.kq[c] = in ? u.kq[row * width + j] : 0.f;
      x.code[c] = in ? (float)u.code[row * k.cols + lo + j] : 0.f;
    }
    x.scale = u.scale[at];
    x.zero = u.zero ? u.zero[at] : 0.f;
    x.curve = u.outputs[row * u.rows + row];
    x.coupling = lane < r ? u.outputs[row * u.rows + from + lane] : 0.f;
    x.fits[0] = u.fits[row * 2];
    x.fits[1] = u.fits[row * 2 + 1];
    return x;
  }

  // slopes are the sums of fit.slope, of gradients times codes in lane 0 and of gradients in lane 16. Where gradients are of like sizes all
  // sums of some of them are exact, and the order does not matter.
  __device__ __forceinline__ double slopes(const float* code, const float* g) {
    unsigned least = ~0u, most = 0;
    double f[2] = {0, 0};
    #pragma unroll
    for (int c = 0; c < C; c++) {
      if (c * 32 + lane >= width) continue;
      unsigned size = __float_as_uint(g[c]) & 0x7fffffffu;
      if (size && size < least) least = size;
      if (size > most) most = size;
      f[0] += (double)code[c] * (double)g[c];
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
        s->terms[0][c * 32 + lane] = (double)code[c] * (double)g[c];
        s->terms[1][c * 32 + lane] = (double)g[c];
      }
      __syncwarp();
      for (int j = 0; lane % 16 == 0 && j < width; j++) sum += s->terms[lane / 16][j];
      __syncwarp();
    }
    return 0 + sum;
  }

  // move moves the rows of a panel of rows, one after the other, with a warp, and returns which have moved.
  __device__ __forceinline__ unsigned move(int from, int turn) {
    Descent d;
    d.half = k.half;
    d.zero = u.zero;
    int count = u.rows - from < ROWS ? u.rows - from : ROWS, blocks = k.cols / width;
    float *change = (float*)s->change, *couplings = (float*)s->outputs[warp], sums[C], diagonal[C], flats[C];
    float mid = (float)(1 << (k.bits - 1)), least = -mid, most = mid - 1, unknown = __uint_as_float(0x7fffffffu);
    double total = k.totals[lo / width];
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
      float* g = x.gradient;
      // What the rows of the panel before it do to its gradient.
      couplings[lane] = x.coupling;
      __syncwarp();
      for (int p = 0; p < r; p += 8) {
        float4 v[2][C], x[2] = {s->outputs[warp][p / 4], s->outputs[warp][p / 4 + 1]};
        #pragma unroll
        for (int c = 0; c < C; c++) {
          v[0][c] = turned(turn, c)[p / 4];
          v[1][c] = turned(turn, c)[p / 4 + 1];
        }
        unsigned those = moved >> p;
        #pragma unroll
        for (int i = 0; i < 2; i++)
          #pragma unroll
          for (int c = 0; c < C; c++) {
            g[c] = those & 1 << 4 * i ? g[c] + v[i][c].x * x[i].x : g[c];
            g[c] = those & 2 << 4 * i ? g[c] + v[i][c].y * x[i].y : g[c];
            g[c] = those & 4 << 4 * i ? g[c] + v[i][c].z * x[i].z : g[c];
            g[c] = those & 8 << 4 * i ? g[c] + v[i][c].w * x[i].w : g[c];
          }
      }
      // The scale and the zero term.
      #pragma unroll
      for (int c = 0; c < C; c++) x.code[c] -= mid;
      double slope = slopes(x.code, g) / (double)x.curve;
      double f[4] = {__shfl_sync(~0u, slope, 0), __shfl_sync(~0u, slope, 16), x.fits[0], x.fits[1]};
      float scale = x.scale, zero = x.zero;
      bool any = solve(d, f, total, &scale, &zero);
      if (any) {
        float by = (scale - x.scale) * x.curve, more = (zero - x.zero) * x.curve;
        #pragma unroll
        for (int c = 0; c < C; c++) {
          g[c] += x.kq[c] * by;
          g[c] += sums[c] * more;
        }
      }
      // The codes, 32 columns at a time. Until one moves all of these decide at once; the first that moves does, and those after it decide again.
      float inverse = 1.f / scale, flat = 1.f / x.curve * inverse, q[C];
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
          if (lane > i && (KEPT || c * 32 + lane < width)) g[c] += square(c * 32 + i, c * 32 + lane) * factor;
          #pragma unroll
          for (int d = c + 1; d < C; d++)
            if (KEPT || d * 32 + lane < width) g[d] += square(c * 32 + i, d * 32 + lane) * factor;
          start = i + 1;
          any = true;
        }
      }
      // What has changed.
      size_t row = from + r;
      #pragma unroll
      for (int c = 0; c < C; c++) {
        int j = c * 32 + lane;
        float v = any ? -(x.scale * x.code[c] + x.zero) + (scale * q[c] + zero) : 0.f;
        if (j >= width) continue;
        u.change[row * width + j] = change[j] = v;
        if (any) u.code[row * k.cols + lo + j] = (unsigned char)(q[c] + mid);
      }
      if (any && lane == 0) {
        u.scale[row * blocks + lo / width] = scale;
        if (u.zero) u.zero[row * blocks + lo / width] = zero;
      }
      __syncwarp();
      float sum[C];
      #pragma unroll
      for (int c = 0; c < C; c++) sum[c] = 0.f;
      if (any) {
        moved |= 1u << r;
        int p = 0;
        #pragma unroll(C <= 2 ? 8 : KEPT ? 4 : 2)
        for (; p + 4 <= width; p += 4) {
          float4 v = s->change[p / 4];
          #pragma unroll
          for (int c = 0; c < C; c++) {
            int j = c * 32 + lane < width ? c * 32 + lane : 0;
            sum[c] = __fmaf_rn(v.x, square(p, j), sum[c]); sum[c] = __fmaf_rn(v.y, square(p + 1, j), sum[c]);
            sum[c] = __fmaf_rn(v.z, square(p + 2, j), sum[c]); sum[c] = __fmaf_rn(v.w, square(p + 3, j), sum[c]);
          }
        }
        for (; p < width; p++) {
          #pragma unroll
          for (int c = 0; c < C; c++) sum[c] = __fmaf_rn(change[p], square(p, c * 32 + lane < width ? c * 32 + lane : 0), sum[c]);
        }
      }
      #pragma unroll
      for (int c = 0; c < C; c++) ((float*)turned(turn, c))[r] = sum[c];
      __syncwarp();
    }
    return moved;
  }

  // all moves all rows. While one warp moves a panel of rows, the others let the rows below it know what the panel before it did.
  __device__ __forceinline__ void all(int sweep) {
    const int warps = THREADS / 32;
    unsigned any = 0;
    keep();
    for (int from = 0, turn = 0; from < u.rows; from += ROWS, turn ^= 1) {
      int before = from - ROWS, below = from + ROWS < u.rows ? from + ROWS : (int)u.rows;
      bool known = from == 0 || !s->rows[turn ^ 1];
      if (!known) push(before, turn ^ 1, from, below, warp, warps);
      __syncthreads();
      if (warp == 0) {
        unsigned moved = move(from, turn);
        any |= moved;
        if (lane == 0) s->rows[turn] = moved;
      } else if (!known) {
        push(before, turn ^ 1, below, u.rows, warp - 1, warps - 1);
      }
      __syncthreads();
    }
    if (threadIdx.x) return;
    u.moved[k.sweeps] = any != 0;
    if (any) u.moved[sweep] = 1;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) moves(Refinement k, int lo, int sweep) {
  __shared__ Moving s;
  Run u = k.runs[blockIdx.x];
  if (over(u, sweep)) return;
  if (k.block <= 64) Panel<2, true>(k, u, &s, lo).all(sweep);
  else if (k.wide) Panel<4, true>(k, u, &s, lo).all(sweep);
  else Panel<4, false>(k, u, &s, lo).all(sweep);
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
