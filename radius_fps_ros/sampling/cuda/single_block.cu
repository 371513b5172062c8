// Farthest point sampling by one block, as PointNet++ and the libraries after it do it: the fastest for small clouds.
//
// Macros: THREADS, and HELD, the points of a thread, in registers; 0: keys are in memory, for clouds of any size.
#include "in_registers.cuh"

constexpr int WARPS = THREADS / 32;

#if HELD

struct Exchange {
    Letter (*mail)[WARPS];  // two sets, by turns: a warp may be one sample ahead of those that still read

    __device__ __forceinline__ const Letter* operator()(u32 count, const Letter& letter, u32 owner) const {
        Letter* letters = mail[count % 2];
        if (lane_id() == owner) letters[threadIdx.x / 32] = letter;
        __syncthreads();
        return letters;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    single_block(const float* __restrict__ points, u32 n, const u32* start_at, u32 start, u32 n_samples,
                 long long* indices, Summary* summary) {
    __shared__ Letter mail[2][WARPS];
    if (find_start(points, n, start_at, start))
        sample_in_registers<HELD, WARPS>(points, n, start, n_samples, threadIdx.x / 32, indices, summary,
                                           Exchange{mail});
    else if (threadIdx.x == 0)
        *summary = {0, 0, 0, 0, 0};
}

#else

static_assert(WARPS == 32, "a lane of the first warp for each");

extern "C" __global__ void __launch_bounds__(THREADS)
    single_block(const float* __restrict__ points, u32 n, const u32* start_at, u32 start, u32 n_samples,
                 long long* indices, Summary* summary, Key* __restrict__ keys) {
    __shared__ Rank best[WARPS];
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

#endif
