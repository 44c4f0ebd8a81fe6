// place takes a matrix [rows][cols], of which columns lie together, to where element (r, c) is dst[r/32*panel + r%32*line + c*step]:
// panels, or rows. It is stored, or subtracted from what is there.
extern "C" __global__ void __launch_bounds__(THREADS) place(float* dst, long long panel, long long line, long long step, const float* src,
                                                            int rows, int cols, int subtract) {
  int r = blockIdx.x * PANEL + threadIdx.x % PANEL;
  if (r >= rows) return;
  float* to = dst + r / PANEL * panel + r % PANEL * line;
  for (int c = blockIdx.y * PANEL + threadIdx.x / PANEL, end = c + PANEL; c < end && c < cols; c += THREADS / PANEL) {
    float v = src[(size_t)r * cols + c], *at = to + c * step;
    *at = subtract ? __fadd_rn(*at, -v) : v;
  }
}
