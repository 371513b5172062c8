// Plain farthest point sampling by warps that hold the points and their keys in registers. How the warps learn of each
// other's best point is the caller's: within a block (single_block.cu) or a cluster (cluster.cu).
#pragma once
#include "start.cuh"
#include "summary.cuh"
#include "warp.cuh"

// The best point of a warp.
struct alignas(16) Letter {
    Key key;
    Point point;
};

// A lane's share of the warp's points: place i of the warp is point i / 32 of lane i % 32.
template <int POINTS>
struct Held {
    Point points[POINTS];
    Key keys[POINTS];

    // Places past the last row repeat it with a key of 0, which is never chosen.
    __device__ __forceinline__ Held(const float* cloud, u32 n, u32 first) {
#pragma unroll
        for (u32 j = 0; j < POINTS; ++j) {
            const u32 row = first + 32 * j + lane_id();
            points[j] = load_point(cloud, min(row, n - 1));
            keys[j] = row < n && is_finite(points[j]) ? INFINITE_KEY : 0;
        }
    }

    // Lowers the keys; returns the largest.
    __device__ __forceinline__ Key update(Point sample) {
        Key best = 0;
#pragma unroll
        for (int j = 0; j < POINTS; ++j) {
            keys[j] = min(keys[j], squared_distance(points[j], sample));
            best = max(best, keys[j]);
        }
        return best;
    }

    // The first place of this lane whose key is `best`, and its point. A chain of selections, because registers cannot
    // be indexed.
    __device__ __forceinline__ u32 find(Key best, Point& point) const {
        int last = POINTS - 1;
        point = points[POINTS - 1];
#pragma unroll
        for (int j = POINTS - 2; j >= 0; --j)
            if (keys[j] == best) {
                last = j;
                point = points[j];
            }
        return 32 * last + lane_id();
    }
};

// `exchange(count, letter, lane)` tells all warps the letter that `lane` of this warp has, and returns those of all
// warps, in their order, once they have come. Rows ascend with warps and with places, so that taking the first among
// equals at each step takes the smallest row, and keys alone have to be compared.
template <int POINTS, int WARPS, class Exchange>
__device__ __forceinline__ void sample_in_registers(const float* cloud, u32 n, u32 start, u32 n_samples, u32 warp,
                                                    long long* indices, Summary* summary, Exchange exchange) {
    const u32 lane = lane_id(), first = warp * 32 * POINTS;
    Held<POINTS> held(cloud, n, first);
    Point sample = load_point(cloud, start);
    if (warp == 0 && lane == 0) indices[0] = start;
    for (u32 count = 1;; ++count) {
        const Key best = held.update(sample), own = warp_max(best);
        Letter letter = {own, {}};
        const u32 found = held.find(best, letter.point);
        const u32 place = warp_min(best == own ? found : ALL);
        const Letter* letters = exchange(count, letter, place % 32);
        Key highest = 0;
        u32 sender = lane;
#pragma unroll
        for (u32 i = lane; i < WARPS; i += 32)
            if (const Key key = letters[i].key; key > highest) {
                highest = key;
                sender = i;
            }
        const Key top = warp_max(highest);
        const u32 winner = warp_min(highest == top ? sender : ALL);
        if (top == 0 || count == n_samples) {
            if (warp == 0 && lane == 0) *summary = {count, top, count, 0, (u64)n * count};
            return;
        }
        sample = letters[winner].point;
        if (winner == warp && lane == 0) indices[count] = first + place;
    }
}
