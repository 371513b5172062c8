// Which row a run starts from.
#pragma once
#include "geometry.cuh"

// `start` becomes `*start_at`, or stays where that is null. False where sampling cannot start from it.
__device__ __forceinline__ bool find_start(const float* points, u32 n, const u32* start_at, u32& start) {
    if (start_at) start = *start_at;
    return start < n && is_finite(load_point(points, start));
}
