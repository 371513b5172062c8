// Sums across the threads of one block (a whole number of warps, at most 32).

// Every thread gets the sum of `value` over the threads before it; `total` becomes the block's sum.
__device__ __forceinline__ int block_exclusive_sum(int value, int& total) {
    __shared__ int warp_sums[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    int inclusive = value;
    for (int step = 1; step < 32; step <<= 1) {
        const int below = __shfl_up_sync(0xffffffffu, inclusive, step);
        if (lane >= step) inclusive += below;
    }
    if (lane == 31) warp_sums[warp] = inclusive;
    __syncthreads();
    int before = 0, sum = 0;
    for (int w = 0; w < warps; ++w) {
        const int part = warp_sums[w];
        before += w < warp ? part : 0;
        sum += part;
    }
    total = sum;
    __syncthreads();  // warp_sums may be used again at once
    return before + inclusive - value;
}
