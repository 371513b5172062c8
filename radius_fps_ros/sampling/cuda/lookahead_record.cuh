// The samples drawn so far, round by round, and their order.
#pragma once
#include "lookahead_state.cuh"

// A round that drew samples. All of them up to `end` rank above `floor`; all of it and later rank at most `top`.
struct Round {
    Rank top, floor;
    u32 end, unused;
};

// How many leading rounds have drawn only samples that no later one can precede. `from` are known to be such.
__device__ u32 closed_rounds(const Round* history, u32 from, u32 rounds, Rank highest) {
    while (true) {
        const u32 i = from + threadIdx.x;
        const int count = __syncthreads_count(i < rounds && __ldcg(&history[i].floor) >= highest);
        from += count;
        if (count < THREADS) return from;
    }
}

__device__ u32 count_above(const Rank* drawn, u32 begin, u32 end, Rank rank) {
    u32 count = 0;
    for (u32 first = begin; first < end; first += THREADS) {
        const u32 i = first + threadIdx.x;
        count += __syncthreads_count(i < end && __ldcg(&drawn[i]) > rank);
    }
    return count;
}

// Each warp places samples: a sample's position is the number of higher ranks. Only rounds that overlap its own in rank
// have to be counted through.
__device__ void write_in_order(const Rank* drawn, u32 total, const Round* history, u32 rounds, u32 n_samples,
                               long long* indices, u32* coverage, Rank highest) {
    const int lane = lane_id();
    for (u32 i = blockIdx.x * WARPS + threadIdx.x / 32; i < total; i += gridDim.x * WARPS) {
        const Rank rank = drawn[i];
        u32 ahead = 0, alive = 0;  // rounds whose samples all precede it; rounds that are not all behind it
        for (u32 r = lane; r < rounds; r += 32) {
            ahead += history[r].floor >= rank;
            alive += history[r].top >= rank;
        }
        ahead = warp_sum(ahead);
        alive = warp_sum(alive);
        const u32 begin = ahead ? history[ahead - 1].end : 0, end = alive ? history[alive - 1].end : 0;
        u32 higher = 0;
        for (u32 j = begin + lane; j < end; j += 32) higher += drawn[j] > rank;
        const u32 position = 1 + begin + warp_sum(higher);
        if (lane == 0 && position < n_samples) indices[position] = rank_row(rank);
        if (lane == 0 && position == n_samples) *coverage = max(rank_key(rank), rank_key(highest));
    }
}
