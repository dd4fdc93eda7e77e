// Tiles of a product on tensor cores, for tests of the SASS reader: each warp adds up 16 x 8 tiles.
extern "C" __global__ void __launch_bounds__(64) tiles(const unsigned* a, const unsigned* b, float* c, int count,
                                                       int depth) {
#pragma unroll 1
  for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
    float sum[4] = {};
#pragma unroll 1
    for (int k = 0; k < depth; ++k) {
      const unsigned* x = a + (tile * depth + k) * 128 + threadIdx.x;
      const unsigned* y = b + k * 64 + threadIdx.x;
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                   "{%0,%1,%2,%3};"
                   : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                   : "r"(x[0]), "r"(x[32]), "r"(x[64]), "r"(x[96]), "r"(y[0]), "r"(y[32]));
    }
    for (int i = 0; i < 4; ++i) c[tile * 128 + i * 32 + threadIdx.x] = sum[i];
  }
}
