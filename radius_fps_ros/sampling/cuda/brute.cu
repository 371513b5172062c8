// Farthest point sampling as its definition: two launches a sample, one that lowers all keys and one that finds the
// largest. The baseline of the other methods.
#include "start.cuh"
#include "summary.cuh"
#include "warp.cuh"

constexpr int THREADS = 1024;

// A key of 0 is never chosen: rows that are not finite start with it.
extern "C" __global__ void brute_start(const float* __restrict__ points, u32 n, const u32* start_at, u32 start,
                                       Key* keys, long long* indices, Summary* summary) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) keys[i] = is_finite(load_point(points, i)) ? INFINITE_KEY : 0;
    if (i == 0) {
        const bool usable = find_start(points, n, start_at, start);
        if (usable) indices[0] = start;
        *summary = {usable, 0, 0, 0, 0};
    }
}

extern "C" __global__ void brute_update(const float* __restrict__ points, u32 n, Key* __restrict__ keys,
                                        const long long* __restrict__ indices, const Summary* __restrict__ summary) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || summary->count == 0) return;
    const Point sample = load_point(points, (u32)indices[summary->count - 1]);
    keys[i] = min(keys[i], squared_distance(load_point(points, i), sample));
}

// One block.
extern "C" __global__ void __launch_bounds__(THREADS)
    brute_choose(const Key* __restrict__ keys, u32 n, u32 n_samples, long long* indices, Summary* summary) {
    __shared__ Rank best[THREADS / 32];
    if (summary->count == 0) return;
    Rank rank = 0;
    for (u32 i = threadIdx.x; i < n; i += THREADS) rank = max(rank, make_rank(keys[i], i));
    rank = warp_max(rank);
    if (lane_id() == 0) best[threadIdx.x / 32] = rank;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    rank = warp_max(best[threadIdx.x]);
    if (threadIdx.x == 0) {
        summary->coverage = rank_key(rank);
        if (rank_key(rank) != 0 && summary->count < n_samples) indices[summary->count++] = rank_row(rank);
    }
}
