// The descent of gptq for rows whose codes have been chosen (quant/descent.go), with its roundings and orders of sums. Rows do not
// depend on each other, so a block takes 32 of them through all sweeps. Eight threads have a row: they share its gradient, each with
// every eighth column, and all of them compute what is decided for a code.

#define ROWS 32    // of a block
#define LANES 8    // threads of a row
#define WIDEST 128 // columns of a panel, descentPanel there
#define STRIDE 136 // of rows in shared memory, such that the rows of a warp lie in unlike banks
#define COLUMNS 64 // of a product at a time
#define DEPTH 32   // positions in shared memory

struct Descent {
  float *code, *work, *scale, *zero; // zero is null for symmetric grids
  const float *target, *hessian, *sums;
  const double* totals;
  int rows, cols, pitch, block, sweeps, bits, half; // pitch is that of the Hessian
  float ridge;
};

// Tiles are the factors of a product in shared memory.
struct Tiles {
  float4 a[DEPTH][ROWS / 4 + 1]; // by position
  float b[DEPTH][COLUMNS];
};

// product makes the sums of all rows for columns of h, [k, ldh]: those of MatMul. The values of rows that do not exist are unknown.
__device__ __forceinline__ void product(float (*dst)[STRIDE], Tiles* s, const float* a, int lda, int rows, const float* h, int ldh, int width, int k) {
  int t = threadIdx.x, warp = t / 32, lane = t % 32;
  bool in = t / LANES < rows;
  a += in ? (size_t)(t / LANES) * lda : 0;
  for (int c = 0; c < width; c += COLUMNS) {
    float sum[4][2], part[4][2], x[4], y[8];
    int column = c + t % COLUMNS;
    #pragma unroll
    for (int i = 0; i < 4; i++) part[i][0] = part[i][1] = sum[i][0] = sum[i][1] = 0.f;
    for (int p = -DEPTH; p < k; p += DEPTH) {
      // The next factors come while the sums of those in shared memory are made.
      int next = p + DEPTH;
      if (next < k) {
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          int q = next + i * LANES + t % LANES;
          x[i] = in && q < k ? a[q] : 0.f;
        }
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          int q = next + i * (THREADS / COLUMNS) + t / COLUMNS;
          y[i] = column < width && q < k ? h[(size_t)q * ldh + column] : 0.f;
        }
      }
      if (p >= 0) {
        int left = k - p < DEPTH ? k - p : DEPTH;
        #pragma unroll 8
        for (int q = 0; q < left; q++) {
          float4 u = s->a[q][warp];
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            float v = s->b[q][lane + j * 32];
            part[0][j] = __fmaf_rn(u.x, v, part[0][j]); part[1][j] = __fmaf_rn(u.y, v, part[1][j]);
            part[2][j] = __fmaf_rn(u.z, v, part[2][j]); part[3][j] = __fmaf_rn(u.w, v, part[3][j]);
          }
        }
        if (next % SEGMENT == 0 || next >= k) {
          #pragma unroll
          for (int i = 0; i < 4; i++)
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
        for (int i = 0; i < 4; i++) ((float*)s->a[i * LANES + t % LANES])[t / LANES] = x[i];
        #pragma unroll
        for (int i = 0; i < 8; i++) s->b[i * (THREADS / COLUMNS) + t / COLUMNS][t % COLUMNS] = y[i];
        __syncthreads();
      }
    }
    #pragma unroll
    for (int i = 0; i < 4; i++)
      #pragma unroll
      for (int j = 0; j < 2; j++)
        if (c + lane + j * 32 < width) dst[4 * warp + i][c + lane + j * 32] = sum[i][j];
  }
  __syncthreads();
}

__device__ __forceinline__ bool finite(float x) { return x - x == 0.f; }

// half rounds to half precision.
__device__ __forceinline__ float half(float x) {
  unsigned bits = __float_as_uint(x), sign = bits & 0x80000000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return x;
  if (size >= 0x477ff000u) return __uint_as_float(sign | 0x7f800000u); // 65520
  if (size >= 0x38800000u) return __uint_as_float((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu); // 2^-14
  // The last place of a float in [0.5, 1) is that of a subnormal half: the addition rounds.
  return __uint_as_float(sign | __float_as_uint(__fadd_rn(__fadd_rn(__uint_as_float(size), 0.5f), -0.5f)));
}

__device__ __forceinline__ float stored(Descent d, double v) { return d.half ? half((float)v) : (float)v; }

__device__ __forceinline__ bool moderate(double x) { return fabs(x) >= 0x1p-400 && fabs(x) <= 0x1p400; }

// quotient is a / b, rounded as such. An inverse, 1 / b, makes that faster: of a quotient that is off by less than a unit in its last place
// the remainder is exact, and corrects it.
__device__ __forceinline__ double quotient(double a, double b, double inverse) {
  double q = a * inverse;
  q = fma(fma(-q, b, a), inverse, q);
  q = fma(fma(-q, b, a), inverse, q);
  return moderate(a) && moderate(b) && moderate(q) ? q : a / b;
}

// determinant is that of the equations for a scale and a zero term, or what is left of them without one.
__device__ __forceinline__ double determinant(const float* zero, double qq, double q1, double ones) { return zero ? qq * ones - q1 * q1 : qq; }

// solve is fit.solve: it replaces the scale and zero term by the best ones, and reports whether they are others. inverses are those of ones and
// of the determinant.
__device__ __forceinline__ bool solve(Descent d, const double* f, double ones, const double* inverses, float* scale, float* zero) {
  double gq = f[0], g1 = f[1], qq = f[2], q1 = f[3];
  bool symmetric = !d.zero;
  float s = *scale, z = *zero, least = d.half ? 0x1p-24f : 0x1p-120f;
  double det = determinant(d.zero, qq, q1, ones);
  if (symmetric && qq > 0) s = stored(d, (double)*scale - quotient(gq, qq, inverses[1]));
  else if (!symmetric && det > 1e-9 * qq * ones) s = stored(d, (double)*scale + quotient(g1 * q1 - gq * ones, det, inverses[1]));
  if (!finite(s) || !(s >= least || (symmetric && s <= -least))) s = *scale;
  double ds = (double)s - (double)*scale;
  if (!symmetric) {
    z = stored(d, (double)*zero - quotient(g1 + ds * q1, ones, inverses[0]));
    if (!finite(z)) return false;
  }
  double dz = (double)z - (double)*zero;
  double change = 2 * (gq * ds + g1 * dz) + ds * ds * qq + 2 * (ds * dz * q1) + dz * dz * ones;
  if (!(change < 0) || (s == *scale && z == *zero)) return false;
  *scale = s;
  *zero = z;
  return true;
}

// nearest is codeRange.nearest.
__device__ __forceinline__ float nearest(float x, float least, float most) {
  if (x <= least) return least;
  if (x >= most) return most;
  return __fadd_rn(__fadd_rn(x, 0x1.8p23f), -0x1.8p23f);
}

extern "C" __global__ void __launch_bounds__(THREADS) descend(Descent d) {
  __shared__ Tiles tiles;
  __shared__ float gradient[ROWS][STRIDE], second[ROWS][STRIDE]; // later the codes of the panel
  __shared__ double fits[ROWS][4];
  __shared__ int moved;
  int n = d.cols, blocks = n / d.block, first = blockIdx.x * ROWS, rows = d.rows - first < ROWS ? d.rows - first : ROWS;
  int r = threadIdx.x / LANES, l = threadIdx.x % LANES;
  bool in = r < rows; // the others do as the first row does, and write nothing
  size_t row = first + (in ? r : 0);
  float *code = d.code + row * n, *work = d.work + row * n, *scales = d.scale + row * blocks, *zeros = d.zero ? d.zero + row * blocks : 0;
  const float* target = d.target + row * n;
  float least = -(float)(1 << (d.bits - 1)), most = -least - 1, *g = gradient[r], *kq = second[r];
  for (int j = l; in && j < n; j += LANES) work[j] = scales[j / d.block] * code[j] + (zeros ? zeros[j / d.block] : 0.f) - target[j];
  __syncthreads();
  for (int sweep = 0; sweep < d.sweeps; sweep++) {
    if (threadIdx.x == 0) moved = 0;
    for (int at = 0; at < blocks; at++) {
      int from = at * d.block, end = from + d.block;
      bool whole = d.block <= WIDEST;
      // refit
      double f = 0;
      for (int lo = from; lo < end; lo += WIDEST) {
        int width = end - lo < WIDEST ? end - lo : WIDEST;
        const float* h = d.hessian + lo;
        product(gradient, &tiles, d.work + (size_t)first * n, n, rows, h, d.pitch, width, n);
        product(second, &tiles, d.code + (size_t)first * n + from, n, rows, h + (size_t)from * d.pitch, d.pitch, width, d.block);
        for (int j = l; j < width; j += LANES) {
          g[j] += d.ridge * work[lo + j];
          kq[j] += d.ridge * code[lo + j];
        }
        __syncwarp();
        double sum = 0; // of a lane
        if (l < 4) for (int j = 0; j < width; j++) {
          double q = l == 1 ? 1 : code[lo + j];
          sum += q * (double)(l < 2 ? g[j] : l == 2 ? kq[j] : d.sums[lo + j]);
        }
        f += sum;
        __syncwarp();
      }
      if (l < 4) fits[r][l] = f;
      __syncwarp();
      float scale = scales[at], zero = zeros ? zeros[at] : 0.f, s = scale, z = zero;
      double inverses[2] = {1 / d.totals[at], 1 / determinant(d.zero, fits[r][2], fits[r][3], d.totals[at])};
      bool other = solve(d, fits[r], d.totals[at], inverses, &s, &z);
      if (other && whole) {
        for (int j = l; j < d.block; j += LANES) {
          float v = g[j] + kq[j] * (s - scale);
          g[j] = v + d.sums[from + j] * (z - zero);
        }
      } else if (other && in)
        for (int j = from + l; j < end; j += LANES) work[j] = s * code[j] + z - target[j];
      __syncwarp();
      if (other && in && l == 0) {
        scales[at] = s;
        if (zeros) zeros[at] = z;
        moved = 1;
      }
      // move
      float inverse = 1.f / s;
      for (int lo = from; lo < end; lo += WIDEST) {
        int width = end - lo < WIDEST ? end - lo : WIDEST;
        const float* h = d.hessian + (size_t)lo * d.pitch + lo;
        if (!whole) {
          __syncthreads();
          product(gradient, &tiles, d.work + (size_t)first * n, n, rows, d.hessian + lo, d.pitch, width, n);
          for (int j = l; j < width; j += LANES) g[j] += d.ridge * work[lo + j];
        }
        for (int j = l; j < width; j += LANES) kq[j] = code[lo + j];
        __syncwarp();
        for (int i = 0; i < width; i++, h += d.pitch) {
          float q = kq[i], slope = g[i], curve = h[i] + d.ridge;
          float best = nearest(q - slope / curve * inverse, least, most), by = s * (best - q);
          bool better = best != q && (double)by * (2 * (double)slope + (double)by * (double)curve) < 0;
          if (better) for (int j = i + 1 + (l - i - 1 & LANES - 1); j < width; j += LANES) g[j] += h[j] * by;
          __syncwarp();
          if (better && in && l == 0) {
            kq[i] = best;
            moved = 1;
          }
        }
        __syncwarp();
        for (int j = l; in && j < width; j += LANES) {
          code[lo + j] = kq[j];
          work[lo + j] = s * kq[j] + z - target[lo + j];
        }
      }
      __syncthreads();
    }
    int any = moved;
    __syncthreads();
    if (!any) return;
  }
}
