// Codes that put points near in space near in order. They decide how tight voxels are, never which points are sampled.
#pragma once
#include "warp.cuh"

constexpr int SAMPLE = 128;

// A few of the cloud's points stand for its extent.
struct Range {
    float low, high, median;
};

// Cell number, 0 to cells - 1. Compared before it is converted, which is undefined beyond the integers; NaN gives 0.
__device__ __forceinline__ u32 cell(float offset, float scale, u32 cells) {
    const float t = fmaxf(offset * scale, 0.0f);
    return (u32)fminf(t, (float)(cells - 1));
}

__device__ __forceinline__ float cells_per_unit(float extent, float cells) {
    return extent > 0.0f ? fminf(cells / extent, 1e30f) : 0.0f;
}

// Where the valid ones of a block's threads come in their order, and how many there are. Every thread calls it.
__device__ u32 place_of_valid(bool valid, u32& count) {
    __shared__ u32 of_warp[32];
    const u32 warp = threadIdx.x / 32, all = __ballot_sync(ALL, valid);
    __syncthreads();  // an earlier call has been read
    if (lane_id() == 0) of_warp[warp] = __popc(all);
    __syncthreads();
    const u32 mine = lane_id() < blockDim.x / 32 ? of_warp[lane_id()] : 0;
    count = warp_sum(mine);
    return warp_sum(lane_id() < warp ? mine : 0) + __popc(all & ((1u << lane_id()) - 1));
}

// Ranges of three values, from the valid ones of the block's threads, cut where a few outliers would stretch them many
// times beyond the bulk. Every thread calls it.
__device__ void bulk_ranges(const float (&value)[3], bool valid, Range (&range)[3]) {
    __shared__ float4 samples[SAMPLE];  // some of them, for the order that takes the time
    __shared__ u32 places[SAMPLE];      // three, of 10 bits
    __shared__ float ranked[3][SAMPLE], lows[3][32], highs[3][32];
    const u32 t = threadIdx.x, warp = t / 32, warps = blockDim.x / 32;
    u32 all;
    const u32 place = place_of_valid(valid, all), step = max(1u, (all + SAMPLE - 1) / SAMPLE);
    const u32 count = (all + step - 1) / step;
    if (valid && place % step == 0) samples[place / step] = make_float4(value[0], value[1], value[2], 0.0f);
    if (t < SAMPLE) places[t] = 0;
    for (int axis = 0; axis < 3; ++axis) {
        const float low = warp_min_coordinate(valid ? value[axis] : INFINITE);
        const float high = warp_max_coordinate(valid ? value[axis] : -INFINITE);
        if (lane_id() == 0) {
            lows[axis][warp] = low;
            highs[axis][warp] = high;
        }
    }
    __syncthreads();
    // A sample's place is the number of those before it; the block's parts count among some of the samples each.
    const u32 parts = blockDim.x / SAMPLE, sample = t % SAMPLE;
    const float4 own = samples[sample];
    u32 before = 0;
#pragma unroll 8
    for (u32 i = t / SAMPLE; i < count; i += parts) {
        const float4 other = samples[i];
        const bool earlier = i < sample;  // among equals
        before += other.x < own.x || (earlier && other.x == own.x);
        before += (other.y < own.y || (earlier && other.y == own.y)) << 10;
        before += (other.z < own.z || (earlier && other.z == own.z)) << 20;
    }
    if (sample < count) atomicAdd(&places[sample], before);
    __syncthreads();
    if (t < count) {
        ranked[0][places[t] & 1023] = own.x;
        ranked[1][places[t] >> 10 & 1023] = own.y;
        ranked[2][places[t] >> 20] = own.z;
    }
    __syncthreads();
    const int tenth = ((int)count - 1) / 10;
    float reach = 0.0f;
    for (int axis = 0; axis < 3 && count > 0; ++axis)
        reach = fmaxf(reach, 4.0f * (ranked[axis][count - 1 - tenth] - ranked[axis][tenth]));
    for (int axis = 0; axis < 3; ++axis) {
        range[axis] = {0.0f, 0.0f, 0.0f};
        const bool known = lane_id() < warps;
        const float low = warp_min_coordinate(known ? lows[axis][lane_id()] : INFINITE);
        const float high = warp_max_coordinate(known ? highs[axis][lane_id()] : -INFINITE);
        if (count == 0) continue;
        range[axis] = {low, high, ranked[axis][count / 2]};
        if (reach == 0.0f) continue;
        range[axis].low = fmaxf(low, ranked[axis][tenth] - reach);
        range[axis].high = fminf(high, ranked[axis][count - 1 - tenth] + reach);
    }
}

// A cube of 2^bits cells a side around the bulk of the cloud, walked along a Hilbert curve.
struct HilbertCurve {
    Point low;
    float scale;
    int bits;

    __device__ void fit(const Range (&range)[3], int bits_per_axis) {
        low = {range[0].low, range[1].low, range[2].low};
        const float extent =
            fmaxf(fmaxf(range[0].high - low.x, range[1].high - low.y), range[2].high - low.z);
        bits = bits_per_axis;
        scale = cells_per_unit(extent, (float)(1 << bits));
    }

    // J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).
    __device__ u32 code(Point p) const {
        u32 x[3] = {cell(p.x - low.x, scale, 1u << bits), cell(p.y - low.y, scale, 1u << bits),
                    cell(p.z - low.z, scale, 1u << bits)};
        for (u32 side = 1u << (bits - 1); side > 1; side >>= 1)
#pragma unroll
            for (int axis = 0; axis < 3; ++axis)
                if (x[axis] & side) {
                    x[0] ^= side - 1;
                } else {
                    const u32 swap = (x[0] ^ x[axis]) & (side - 1);
                    x[0] ^= swap;
                    x[axis] ^= swap;
                }
        x[1] ^= x[0];
        x[2] ^= x[1];
        u32 flip = 0;
        for (u32 side = 1u << (bits - 1); side > 1; side >>= 1)
            if (x[2] & side) flip ^= side - 1;
        return spread(x[0] ^ flip) << 2 | spread(x[1] ^ flip) << 1 | spread(x[2] ^ flip);
    }

    // The low 10 bits moved to every third position.
    static __device__ u32 spread(u32 v) {
        v = (v | v << 16) & 0x030000ffu;
        v = (v | v << 8) & 0x0300f00fu;
        v = (v | v << 4) & 0x030c30c3u;
        return (v | v << 2) & 0x09249249u;
    }
};

// Spherical voxels: cells of equal steps in range, sine of elevation and azimuth around the sensor, about as long as
// wide as high at the median range (RadiusFPS, Yu et al., arXiv 2606.06255).
struct SphericalGrid {
    Point centre;
    Range range[3];
    u32 cells[3];
    float scale[3];

    // The azimuth is measured along the unit diamond |x| + |y| = 1 in place of the circle: as monotone as the angle.
    __device__ void coordinates(Point p, float (&c)[3]) const {
        const Point q = {p.x - centre.x, p.y - centre.y, p.z - centre.z};
        const float tiny = 1.2e-38f;
        c[0] = sqrtf(q.x * q.x + q.y * q.y + q.z * q.z);
        c[1] = q.z / fmaxf(c[0], tiny);
        const float along = q.y / fmaxf(fabsf(q.x) + fabsf(q.y), tiny);
        c[2] = q.x >= 0.0f ? along : copysignf(2.0f, q.y) - along;
    }

    // The centre is the origin, the sensor of a scan, where the cloud surrounds it, else the box point nearest to it.
    __device__ void place(const Range (&box)[3]) {
        centre = {fminf(fmaxf(0.0f, box[0].low), box[0].high), fminf(fmaxf(0.0f, box[1].low), box[1].high),
                  fminf(fmaxf(0.0f, box[2].low), box[2].high)};
    }

    // `bulk`: ranges of the coordinates.
    __device__ void fit(const Range (&bulk)[3], u32 most_cells) {
        const float half_pi = 1.5707964f, typical = bulk[0].median;
        float length[3] = {bulk[0].high - bulk[0].low, (bulk[1].high - bulk[1].low) * typical,
                           (bulk[2].high - bulk[2].low) * half_pi * typical};
        float budget = (float)most_cells;
        bool done[3] = {false, false, false};
        for (int left = 3; left > 0; --left) {
            // The shortest length first: shorter than a cell's side, it gets one cell and leaves its share to the
            // others.
            int axis = -1;
            for (int i = 0; i < 3; ++i)
                if (!done[i] && (axis < 0 || length[i] < length[axis])) axis = i;
            float share = budget;
            for (int i = 0; i < 3; ++i)
                if (!done[i] && i != axis) share *= length[axis] / fmaxf(length[i], 1e-30f);
            const float count = left == 1 ? share : left == 2 ? sqrtf(share) : cbrtf(share);
            cells[axis] = (u32)fmaxf(1.0f, fminf(count, budget));
            budget /= (float)cells[axis];
            done[axis] = true;
        }
        for (int i = 0; i < 3; ++i) {
            range[i] = bulk[i];
            scale[i] = cells_per_unit(bulk[i].high - bulk[i].low, (float)cells[i]);
        }
    }

    __device__ u32 code(Point p) const {
        float c[3];
        coordinates(p, c);
        u32 code = 0;
        for (int i = 0; i < 3; ++i) code = code * cells[i] + cell(c[i] - range[i].low, scale[i], cells[i]);
        return code;
    }
};
