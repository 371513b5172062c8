// Farthest point sampling by one block, as PointNet++ and the libraries after it do it. The fastest for small clouds.
#include "start.cuh"
#include "summary.cuh"
#include "warp.cuh"

constexpr int THREADS = 1024;

extern "C" __global__ void __launch_bounds__(THREADS)
    single_block(const float* __restrict__ points, u32 n, const u32* start_at, u32 start, u32 n_samples,
                 Key* __restrict__ keys, long long* indices, Summary* summary) {
    __shared__ Rank best[THREADS / 32];
    __shared__ Rank chosen;
    if (!find_start(points, n, start_at, start)) {
        if (threadIdx.x == 0) *summary = {0, 0, 0, 0, 0};
        return;
    }
    for (u32 i = threadIdx.x; i < n; i += THREADS) keys[i] = is_finite(load_point(points, i)) ? INFINITE_KEY : 0;
    u32 row = start, count = 0;
    while (true) {
        if (threadIdx.x == 0) indices[count] = row;
        ++count;
        const Point sample = load_point(points, row);
        Rank rank = 0;
        for (u32 i = threadIdx.x; i < n; i += THREADS) {
            const Key key = min(keys[i], squared_distance(load_point(points, i), sample));
            keys[i] = key;
            rank = max(rank, make_rank(key, i));
        }
        rank = warp_max(rank);
        if (lane_id() == 0) best[threadIdx.x / 32] = rank;
        __syncthreads();
        if (threadIdx.x < 32) {
            rank = warp_max(best[threadIdx.x]);
            if (threadIdx.x == 0) chosen = rank;
        }
        __syncthreads();
        rank = chosen;
        if (count == n_samples || rank_key(rank) == 0) {
            if (threadIdx.x == 0) *summary = {count, rank_key(rank), count, 0, (u64)n * count};
            return;
        }
        row = rank_row(rank);
    }
}
