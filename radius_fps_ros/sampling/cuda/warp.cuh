// Reductions over the 32 lanes of a full warp. From compute capability 8.0 on one instruction does it.
#pragma once
#include "geometry.cuh"

constexpr u32 ALL = 0xffffffffu;

__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }

__device__ __forceinline__ u32 warp_max(u32 v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(ALL, v);
#else
    for (int step = 16; step; step >>= 1) v = max(v, __shfl_xor_sync(ALL, v, step));
    return v;
#endif
}

__device__ __forceinline__ u32 warp_min(u32 v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(ALL, v);
#else
    for (int step = 16; step; step >>= 1) v = min(v, __shfl_xor_sync(ALL, v, step));
    return v;
#endif
}

__device__ __forceinline__ u32 warp_or(u32 v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_or_sync(ALL, v);
#else
    for (int step = 16; step; step >>= 1) v |= __shfl_xor_sync(ALL, v, step);
    return v;
#endif
}

__device__ __forceinline__ u32 warp_sum(u32 v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(ALL, v);
#else
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(ALL, v, step);
    return v;
#endif
}

__device__ __forceinline__ u64 warp_max(u64 v) {
    const u32 high = warp_max((u32)(v >> 32));
    const u32 low = warp_max((u32)(v >> 32) == high ? (u32)v : 0u);
    return ((u64)high << 32) | low;
}

__device__ __forceinline__ float warp_min_coordinate(float v) {
    for (int step = 16; step; step >>= 1) v = smaller(v, __shfl_xor_sync(ALL, v, step));
    return v;
}

__device__ __forceinline__ float warp_max_coordinate(float v) {
    for (int step = 16; step; step >>= 1) v = larger(v, __shfl_xor_sync(ALL, v, step));
    return v;
}

__device__ __forceinline__ Box warp_union(Box box) {
    return {{warp_min_coordinate(box.low.x), warp_min_coordinate(box.low.y), warp_min_coordinate(box.low.z)},
            {warp_max_coordinate(box.high.x), warp_max_coordinate(box.high.y), warp_max_coordinate(box.high.z)}};
}

__device__ __forceinline__ Point shuffle(Point p, int lane) {
    return {__shfl_sync(ALL, p.x, lane), __shfl_sync(ALL, p.y, lane), __shfl_sync(ALL, p.z, lane)};
}

// The lowest set bit of `mask`, which is removed.
__device__ __forceinline__ int pop_bit(u32& mask) {
    const int bit = __ffs(mask) - 1;
    mask &= mask - 1;
    return bit;
}
