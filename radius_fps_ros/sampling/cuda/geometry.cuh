// Distances and ranks, bit for bit those of the CPU.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

// Written as instructions because CuPy compiles with -ftz=true: in C, subnormal numbers would become 0, and a product
// and a sum could become one fused operation, which rounds once where the contract rounds twice.
__device__ __forceinline__ float add(float a, float b) {
    float r;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
__device__ __forceinline__ float subtract(float a, float b) {
    float r;
    asm("sub.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
__device__ __forceinline__ float multiply(float a, float b) {
    float r;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
// These two return the other number when one is NaN.
__device__ __forceinline__ float smaller(float a, float b) {
    float r;
    asm("min.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
__device__ __forceinline__ float larger(float a, float b) {
    float r;
    asm("max.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

#define INFINITE __int_as_float(0x7f800000)

struct Point {
    float x, y, z;
};

struct Box {
    Point low, high;
};

__device__ __forceinline__ Box box_of(Point p) { return {p, p}; }
__device__ __forceinline__ Box empty_box() {
    return {{INFINITE, INFINITE, INFINITE}, {-INFINITE, -INFINITE, -INFINITE}};
}

__device__ __forceinline__ bool is_finite(Point p) {
    return fabsf(p.x) < INFINITE && fabsf(p.y) < INFINITE && fabsf(p.z) < INFINITE;
}

// A squared distance, as the bits of the float: never negative, so bits order as numbers do, and NaN, the distance of a
// point that is not finite, comes last.
typedef u32 Key;
constexpr Key INFINITE_KEY = 0x7f800000u;

// (dx*dx + dy*dy) + dz*dz, each operation rounded.
__device__ __forceinline__ Key squared_length(float dx, float dy, float dz) {
    return __float_as_uint(add(add(multiply(dx, dx), multiply(dy, dy)), multiply(dz, dz)));
}

__device__ __forceinline__ Key squared_distance(Point a, Point b) {
    return squared_length(subtract(a.x, b.x), subtract(a.y, b.y), subtract(a.z, b.z));
}

__device__ __forceinline__ float gap(float low, float high, float q) {
    return larger(larger(subtract(low, q), subtract(q, high)), 0.0f);
}

// A lower bound of squared_distance(q, p) for every p in the box, as rounded, with no margin: rounding is monotone, so
// gap <= |p - q| survives each of the operations, which are the same ones in the same order. Exact for a point.
__device__ __forceinline__ Key squared_distance(Point q, const Box& box) {
    return squared_length(gap(box.low.x, box.high.x, q.x), gap(box.low.y, box.high.y, q.y),
                          gap(box.low.z, box.high.z, q.z));
}

// The order of sampling as one integer: larger key first, then smaller row.
typedef u64 Rank;
__device__ __forceinline__ Rank make_rank(Key key, u32 row) { return (Rank)key << 32 | (u32)~row; }
__device__ __forceinline__ Rank top_rank(Key key) { return (Rank)key << 32 | 0xffffffffu; }  // no row ranks higher
__device__ __forceinline__ Key rank_key(Rank rank) { return (Key)(rank >> 32); }
__device__ __forceinline__ u32 rank_row(Rank rank) { return ~(u32)rank; }

__device__ __forceinline__ Point load_point(const float* points, u32 row) {
    const float* p = points + 3 * (size_t)row;
    return {p[0], p[1], p[2]};
}
