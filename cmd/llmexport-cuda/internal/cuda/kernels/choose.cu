// The choice of rows one after the other of gptq (quant/choose.go), with its roundings and orders of sums. What 8 rows and a block of
// columns need is there once the rows behind them have that block, and they themselves have the blocks behind it. So a launch does all such
// pieces whose numbers of rows and of blocks have the same sum, with a block of threads for each: of every run, and as many as there are.

#define MIX_ROWS 8        // chooseRows
#define MIX_WALKS 7       // grids that are tried at the same time: the one of the search, and gridTries in either direction
#define MIX_PITCH 132     // of what is left of a row for a grid, such that those of a warp lie in unlike banks
#define MIX_PANEL 16      // columns that propagate their errors one by one, while other rows do so with columns that are behind

// Mixed is a run of rows.
struct Mixed {
  float *target, *errors;  // [rows, cols]; columns that are done have Z of chooser instead of targets
  const float* mix;        // [rows, rows]
  const int* order;        // the row of every position
  unsigned char* code;     // [rows, cols]
  float *scale, *zero;     // zero is null for symmetric grids
  int* left;               // set where numbers left the range of float32 or a block has no grid
  long long rows;
};

struct Choice {
  const Mixed* runs;
  const float *factor, *importance;
  const int* order;
  int cols, pitch, block, width, candidates, bits, half; // width is that of a block of columns, pitch that of the factor
};

struct MixShared {
  union {
    FeedShared f; // x is what codes are chosen for, later the errors
    struct {
      float x[MIX_ROWS][STRIDE];
      float trial[MIX_ROWS][MIX_WALKS][MIX_PITCH]; // what is left of x for grids
    } t;
    struct {
      float x[MIX_ROWS][STRIDE];
      float part[8][MIX_ROWS][COLUMNS]; // sums of segments
      float4 a[8][32][MIX_ROWS / 4];    // a factor, by position
    } p;
    struct {
      float mix[MIX_ROWS][32];
      int order[MIX_ROWS][32];
    } m;
  };
  float aim[MIX_ROWS][STRIDE], drawn[MIX_ROWS][STRIDE], missed[MIX_ROWS][STRIDE];
};

// Piece is what a block of threads does. A warp has a row, a lane every 32nd column of it.
struct Piece {
  Choice k;
  Mixed u;
  MixShared* s;
  const float* h;                      // the square of the factor
  int first, width, lo, count, warp, lane; // the first column, and how many; the first row, and how many

  // aims are what rows aim at: the target, and what each 8 rows behind missed.
  __device__ __forceinline__ void aims(int groups) {
    if (warp >= count) {
      for (int c = lane; c < width; c += 32) s->aim[warp][c] = 0;
      return;
    }
    float aim[WIDEST / 32];
    int column[WIDEST / 32];
    #pragma unroll
    for (int c = 0; c < WIDEST / 32; c++) {
      column[c] = c * 32 + lane < width ? k.order[first + c * 32 + lane] : -1;
      aim[c] = column[c] >= 0 ? u.target[(size_t)u.order[lo + warp] * k.cols + column[c]] : 0.f;
    }
    for (int g = 0; g < groups; g += 4) {
      int from = (int)u.rows - MIX_ROWS * (g + 4), j = from + lane;
      __syncwarp();
      s->m.mix[warp][lane] = j >= lo + count ? u.mix[(size_t)(lo + warp) * u.rows + j] : 0.f;
      s->m.order[warp][lane] = j >= lo + count ? u.order[j] : 0;
      __syncwarp();
      for (int i = 3; i >= 0 && g + 3 - i < groups; i--) {
        float sum[WIDEST / 32];
        #pragma unroll
        for (int c = 0; c < WIDEST / 32; c++) sum[c] = 0.f;
        #pragma unroll
        for (int e = 0; e < MIX_ROWS; e++) {
          float x = s->m.mix[warp][i * MIX_ROWS + e];
          const float* z = u.target + (size_t)s->m.order[warp][i * MIX_ROWS + e] * k.cols;
          #pragma unroll
          for (int c = 0; c < WIDEST / 32; c++)
            if (column[c] >= 0) sum[c] = __fmaf_rn(x, z[column[c]], sum[c]);
        }
        #pragma unroll
        for (int c = 0; c < WIDEST / 32; c++) aim[c] += sum[c];
      }
    }
    #pragma unroll
    for (int c = 0; c < WIDEST / 32; c++)
      if (column[c] >= 0) s->aim[warp][c * 32 + lane] = aim[c];
  }

  // draw computes what the errors of the columns behind take: the sums of MatMul, whose segments the warps share.
  __device__ __forceinline__ void draw() {
    int end = first + width, depth = k.cols - end, segments = (depth + SEGMENT - 1) / SEGMENT, t = threadIdx.x;
    for (int c = 0; c < width; c += COLUMNS) {
      float sum[2] = {0.f, 0.f};
      bool in[2] = {c + lane < width, c + lane + 32 < width};
      for (int base = 0; base < segments; base += 8) {
        int from = (base + warp) * SEGMENT, to = from + SEGMENT < depth ? from + SEGMENT : depth;
        float part[MIX_ROWS][2];
        #pragma unroll
        for (int r = 0; r < MIX_ROWS; r++) part[r][0] = part[r][1] = 0.f;
        for (int p = from; p < to; p += 32) {
          float x[MIX_ROWS];
          #pragma unroll
          for (int r = 0; r < MIX_ROWS; r++) x[r] = r < count && p + lane < to ? u.errors[(size_t)(lo + r) * k.cols + end + p + lane] : 0.f;
          __syncwarp();
          #pragma unroll
          for (int r = 0; r < MIX_ROWS; r += 4) s->p.a[warp][lane][r / 4] = make_float4(x[r], x[r + 1], x[r + 2], x[r + 3]);
          __syncwarp();
          const float* b = k.factor + (size_t)(end + p) * k.pitch + first + c + lane;
          int many = to - p < 32 ? to - p : 32;
          #pragma unroll 8
          for (int q = 0; q < many; q++, b += k.pitch) {
            float4 v = s->p.a[warp][q][0], w = s->p.a[warp][q][1];
            #pragma unroll
            for (int j = 0; j < 2; j++) {
              float y = in[j] ? b[j * 32] : 0.f;
              part[0][j] = __fmaf_rn(v.x, y, part[0][j]); part[1][j] = __fmaf_rn(v.y, y, part[1][j]);
              part[2][j] = __fmaf_rn(v.z, y, part[2][j]); part[3][j] = __fmaf_rn(v.w, y, part[3][j]);
              part[4][j] = __fmaf_rn(w.x, y, part[4][j]); part[5][j] = __fmaf_rn(w.y, y, part[5][j]);
              part[6][j] = __fmaf_rn(w.z, y, part[6][j]); part[7][j] = __fmaf_rn(w.w, y, part[7][j]);
            }
          }
        }
        __syncthreads();
        #pragma unroll
        for (int r = 0; r < MIX_ROWS; r++)
          #pragma unroll
          for (int j = 0; j < 2; j++) s->p.part[warp][r][j * 32 + lane] = part[r][j];
        __syncthreads();
        for (int i = 0; i < 8 && base + i < segments; i++)
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            float v = s->p.part[i][warp][j * 32 + lane];
            sum[j] = base + i ? sum[j] + v : v;
          }
        __syncthreads();
      }
      #pragma unroll
      for (int j = 0; j < 2; j++)
        if (in[j]) s->drawn[warp][c + j * 32 + lane] = sum[j];
    }
  }

  // tries returns what grids leave of the objective, each with four lanes: four columns propagate their errors one by one, a column in a
  // lane, then together to those below.
  __device__ __forceinline__ double tries(bool active, float scale, float zero, float least, float most) {
    int l = lane % 4;
    float inverse = 1.f / scale, *x = s->t.trial[warp][lane / 4 < MIX_WALKS ? lane / 4 : 0];
    double sum = 0;
    for (int j = l; active && j < width; j += 4) x[j] = s->t.x[warp][j];
    __syncwarp();
    for (int hi = width; hi > 0; hi -= 4) {
      int from = hi < 4 ? 0 : hi - 4, many = hi - from, c = from + (l < many ? l : 0);
      const float* row = h + (size_t)from * k.pitch;
      float v = active ? x[c] : 0.f, below[4], errors[4], diagonal = row[(size_t)(c - from) * k.pitch + c];
      #pragma unroll
      for (int i = 0; i < 4; i++) below[i] = i < many ? row[(size_t)i * k.pitch + c] : 0.f;
      #pragma unroll
      for (int i = 3; i >= 0; i--) {
        if (i >= many) continue;
        float w = __shfl_sync(~0u, v, lane - l + i), d = __shfl_sync(~0u, diagonal, lane - l + i), q = nearest((w - zero) * inverse, least, most);
        float error = (w - (scale * q + zero)) / d;
        sum += (double)error * (double)error;
        if (l < i) v += below[i] * -error;
        errors[i] = error;
      }
      #pragma unroll 2
      for (int j = l; active && j < from; j += 4) {
        float w = x[j];
        #pragma unroll
        for (int i = 3; i >= 0; i--) w += row[(size_t)i * k.pitch + j] * -errors[i];
        x[j] = w;
      }
      __syncwarp();
    }
    return sum;
  }

  // better is chooser.better: it replaces a grid by the best around it.
  __device__ __forceinline__ void better(float* scale, float* zero, float least, float most) {
    int walk = lane / 4;
    float step = (float)((walk - 1) / 2 + 1) * (walk % 2 ? 1.f : -1.f), tiny = k.half ? 0x1p-24f : 0x1p-120f;
    for (int terms = 0; terms < (u.zero ? 2 : 1); terms++) {
      float mine = *scale, its = *zero;
      if (walk > 0 && terms == 0) mine = rounded(k.half, *scale + *scale * (step * 0.03f));
      if (walk > 0 && terms == 1) its = rounded(k.half, *zero + *scale * (step * 0.125f));
      bool active = walk < MIX_WALKS && finite(mine) && (mine >= tiny || (!u.zero && mine <= -tiny)) && finite(its);
      double sum = tries(active || walk == 0, mine, its, least, most), best = __shfl_sync(~0u, sum, 0);
      float to = *scale, toZero = *zero;
      unsigned those = __ballot_sync(~0u, active);
      for (int i = 1; i < MIX_WALKS; i++) {
        double other = __shfl_sync(~0u, sum, 4 * i);
        float v = __shfl_sync(~0u, mine, 4 * i), z = __shfl_sync(~0u, its, 4 * i);
        if (!(those >> 4 * i & 1) || !(other < best)) continue;
        best = other;
        to = v;
        toZero = z;
      }
      *scale = to;
      *zero = toZero;
    }
  }

  // codes chooses codes of all rows. A row does so with a panel of columns after the row behind it.
  __device__ __forceinline__ void codes(float scale, float zero, float least, float most) {
    int panels = (width + MIX_PANEL - 1) / MIX_PANEL, behind = count - 1 - warp, row = warp < count ? u.order[lo + warp] : 0;
    float inverse = 1.f / scale, *errors = s->f.x[warp];
    for (int turn = 0; turn < panels + count - 1; turn++) {
      int p = turn - behind, hi = width - p * MIX_PANEL, from = hi - MIX_PANEL < 0 ? 0 : hi - MIX_PANEL, many = hi - from;
      if (warp < count && p >= 0 && p < panels) {
        bool in = lane < many;
        int c = from + (in ? lane : 0);
        float aim = s->aim[warp][c];
        for (int j = warp + 1; j < count; j++) aim += s->missed[j][c] * u.mix[(size_t)(lo + warp) * u.rows + lo + j];
        float v = aim - s->drawn[warp][c];
        const float* at = h + (size_t)(width - 1) * k.pitch + c;
        #pragma unroll 8
        for (int j = width - 1; j >= hi; j--, at -= k.pitch) v += *at * -errors[j];
        float below[MIX_PANEL], diagonal = h[(size_t)c * k.pitch + c], code = 0, missed = 0, error = 0;
        #pragma unroll
        for (int i = 0; i < MIX_PANEL; i++) below[i] = i < many && c <= from + i ? h[(size_t)(from + i) * k.pitch + c] : 0.f;
        #pragma unroll
        for (int i = MIX_PANEL - 1; i >= 0; i--) {
          if (i >= many) continue;
          float x = __shfl_sync(~0u, v, i), d = __shfl_sync(~0u, diagonal, i), q = nearest((x - zero) * inverse, least, most);
          float hat = scale * q + zero, e = (x - hat) / d;
          if (lane == i) {
            code = q;
            missed = hat - aim;
            error = e;
          } else if (lane < i) {
            v += below[i] * -e;
          }
        }
        if (in) {
          s->missed[warp][c] = missed;
          errors[c] = error;
          size_t to = (size_t)row * k.cols + k.order[first + c];
          u.target[to] = missed;
          u.code[to] = (unsigned char)(code - least);
          u.errors[(size_t)(lo + warp) * k.cols + first + c] = error;
          if (!finite(error)) *u.left = 1;
        }
      }
      __syncthreads();
    }
  }

  __device__ __forceinline__ void all(int groups) {
    float least = -(float)(1 << (k.bits - 1)), most = -least - 1, scale, zero;
    aims(groups);
    __syncthreads();
    draw();
    __syncthreads();
    for (int c = lane; c < width; c += 32) s->f.x[warp][c] = s->aim[warp][c] - s->drawn[warp][c];
    size_t term = (size_t)u.order[lo + (warp < count ? warp : 0)] * (k.cols / k.block) + k.order[first] / k.block;
    if (k.width == k.block) {
      weigh(&s->f, k.importance + first, width);
      __syncthreads();
      Feedback d;
      d.zero = u.zero;
      d.block = width;
      d.candidates = k.candidates;
      d.bits = k.bits;
      d.half = k.half;
      search(&s->f, d, warp, &scale, &zero);
      float tiny = k.half ? 0x1p-24f : 0x1p-120f;
      bool stored = finite(scale) && (scale >= tiny || (!u.zero && scale <= -tiny)) && finite(zero);
      __syncthreads(); // what the search needs makes room
      better(&scale, &zero, least, most);
      if (warp < count && lane == 0) {
        u.scale[term] = scale;
        if (u.zero) u.zero[term] = zero;
        if (!stored) *u.left = 1;
      }
    } else {
      scale = u.scale[term];
      zero = u.zero ? u.zero[term] : 0.f;
    }
    __syncthreads();
    codes(scale, zero, least, most);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 2) choose(Choice k, int turn, int from) {
  __shared__ MixShared s;
  Mixed u = k.runs[blockIdx.y];
  int at = from + blockIdx.x, groups = turn - at, hi = (int)u.rows - MIX_ROWS * groups, end = k.cols - at * k.width;
  if (groups < 0 || hi <= 0 || end <= 0) return;
  Piece p;
  p.k = k;
  p.u = u;
  p.s = &s;
  p.lo = hi < MIX_ROWS ? 0 : hi - MIX_ROWS;
  p.count = hi - p.lo;
  p.first = end < k.width ? 0 : end - k.width;
  p.width = end - p.first;
  p.h = k.factor + (size_t)p.first * k.pitch + p.first;
  p.warp = threadIdx.x / 32;
  p.lane = threadIdx.x % 32;
  p.all(groups);
}
