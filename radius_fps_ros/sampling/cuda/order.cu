// Sorts the finite points of a cloud along a space-filling curve or by spherical voxels, and cuts them into tiles of 32
// with their boxes. One cooperative launch: encode, least-significant-digit radix sort, gather. Stable, so that it is
// deterministic.
#include "curves.cuh"
#include "grid.cuh"

#ifndef SPHERICAL
#define SPHERICAL 0  // 0: Hilbert curve, 1: spherical voxels
#endif

constexpr int THREADS = 512, WARPS = THREADS / 32, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS;

// The code above, the row below. Rows that are not finite are left out by the first pass of the sort, so that what
// follows is spread over the warps as though the cloud did not hold them.
typedef u64 Item;
constexpr Item NOT_FINITE = ~0ull;

#if SPHERICAL
typedef SphericalGrid Curve;
#else
typedef HilbertCurve Curve;
#endif

// Every block finds the same curve for itself from the same few points: cheaper than to reduce all and to tell
// everyone. Where most rows are not finite, further ones are tried.
__device__ Curve fit_curve(const float* points, u32 n, u32 resolution) {
    constexpr u32 TRIES = 16;
    const u32 step = (n / SAMPLE) | 1;  // odd: an even one can meet the same beam of a scan every time
    Point p = {0.0f, 0.0f, 0.0f};
    bool valid = false;
    for (u32 i = 0; i < TRIES && !valid && threadIdx.x < SAMPLE; ++i) {
        const u64 row = (u64)threadIdx.x * step + (u64)step * i / TRIES;
        if (row < n) p = load_point(points, (u32)row);
        valid = row < n && is_finite(p);
    }
    const float xyz[3] = {p.x, p.y, p.z};
    Range box[3];
    bulk_ranges(xyz, valid, box);
    Curve curve;
#if SPHERICAL
    curve.place(box);
    float c[3];
    curve.coordinates(p, c);
    Range bulk[3];
    bulk_ranges(c, valid, bulk);
    curve.fit(bulk, resolution);
#else
    curve.fit(box, resolution);
#endif
    return curve;
}

// Counts of digits, first by warp, then turned into the place of each warp's first item of each digit.
__shared__ u32 places[WARPS][DIGITS];

__device__ void count_digits(const Item* items, u32 begin, u32 end, int shift) {
    const int warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < WARPS * DIGITS; i += THREADS) (&places[0][0])[i] = 0;
    __syncthreads();
    for (u32 i = begin + lane_id(); i < end; i += 32)
        if (items[i] != NOT_FINITE) atomicAdd(&places[warp][(u32)(items[i] >> shift) & (DIGITS - 1)], 1u);
    __syncthreads();
}

// `counts`: a row of DIGITS for each block.
__device__ void publish_counts(u32* counts) {
    for (int digit = threadIdx.x; digit < DIGITS; digit += THREADS) {
        u32 sum = 0;
        for (int warp = 0; warp < WARPS; ++warp) sum += places[warp][digit];
        counts[blockIdx.x * DIGITS + digit] = sum;
    }
}

// Returns how many items there are in all blocks.
__device__ u32 counts_to_places(const u32* counts) {
    constexpr int PARTS = THREADS / DIGITS;
    __shared__ u32 total[PARTS][DIGITS], before[PARTS][DIGITS], warp_totals[DIGITS / 32];
    const int digit = threadIdx.x % DIGITS, part = threadIdx.x / DIGITS;
    u32 all = 0, earlier = 0;
#pragma unroll 8
    for (int block = part; block < gridDim.x; block += PARTS) {
        const u32 count = __ldcg(&counts[block * DIGITS + digit]);
        all += count;
        earlier += block < blockIdx.x ? count : 0;
    }
    total[part][digit] = all;
    before[part][digit] = earlier;
    __syncthreads();
    u32 sum = 0, scan = 0;
    if (threadIdx.x < DIGITS) {
        for (int i = 0; i < PARTS; ++i) sum += total[i][digit];
        scan = sum;
        for (int step = 1; step < 32; step *= 2) {
            const u32 other = __shfl_up_sync(ALL, scan, step);
            if (lane_id() >= step) scan += other;
        }
        if (lane_id() == 31) warp_totals[digit / 32] = scan;
    }
    __syncthreads();
    u32 items = 0;
    for (int i = 0; i < DIGITS / 32; ++i) items += warp_totals[i];
    if (threadIdx.x < DIGITS) {
        u32 place = scan - sum;
        for (int i = 0; i < digit / 32; ++i) place += warp_totals[i];
        for (int i = 0; i < PARTS; ++i) place += before[i][digit];
        for (int warp = 0; warp < WARPS; ++warp) {
            const u32 count = places[warp][digit];
            places[warp][digit] = place;
            place += count;
        }
    }
    __syncthreads();
    return items;
}

__device__ void scatter(const Item* items, Item* sorted, u32 begin, u32 end, int shift) {
    u32* mine = places[threadIdx.x / 32];
    for (u32 first = begin; first < end; first += 32) {
        const u32 i = first + lane_id();
        const Item item = i < end ? items[i] : NOT_FINITE;
        const bool valid = item != NOT_FINITE;
        const u32 digit = valid ? (u32)(item >> shift) & (DIGITS - 1) : DIGITS;
        const u32 peers = __match_any_sync(ALL, digit);
        const u32 rank = __popc(peers & ((1u << lane_id()) - 1));
        if (valid) sorted[mine[digit] + rank] = item;
        __syncwarp();
        if (valid && rank == 0) mine[digit] += __popc(peers);
        __syncwarp();
    }
}

// A warp's share of the items.
struct Share {
    u32 begin, end;
    __device__ Share(u32 items, u32 warp, u32 warps) {
        const u32 size = ((items + warps - 1) / warps + 31) / 32 * 32;
        begin = min((u64)items, (u64)warp * size);
        end = min((u64)items, (u64)begin + size);
    }
};

// `usable`: how many rows are finite; all that follows holds only those. `items`: (N,); `spare`: (N,), which may be the
// memory of `xyz`: all x, then all y, then all z, and `keys`, each of 32 * tiles; places past the last point hold NaN
// and a key of 0, which nothing can lower or choose. `boxes`: low x, y, z, high x, y, z, and `tile_keys`, each of
// `tiles`.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    order(const float* __restrict__ points, u32 n, u32 resolution, int passes, u32* usable, Item* items, Item* spare,
          u32* counts, u32* arrivals, float* xyz, Key* keys, float* boxes, Key* tile_keys) {
    const Curve curve = fit_curve(points, n, resolution);
    const u32 warps = gridDim.x * WARPS, warp = blockIdx.x * WARPS + threadIdx.x / 32;
    Item* source = passes % 2 ? spare : items;
    Item* target = passes % 2 ? items : spare;
    u32 expected = 0, count = n;

    Share share(count, warp, warps);
    for (u32 i = share.begin + lane_id(); i < share.end; i += 32) {
        const Point p = load_point(points, i);
        source[i] = is_finite(p) ? (u64)curve.code(p) << 32 | i : NOT_FINITE;
    }
    for (int pass = 0; pass < passes; ++pass) {
        const int shift = 32 + pass * DIGIT_BITS;
        count_digits(source, share.begin, share.end, shift);
        publish_counts(counts);
        grid_barrier(arrivals, expected);
        count = counts_to_places(counts);
        scatter(source, target, share.begin, share.end, shift);
        grid_barrier(arrivals, expected);
        share = Share(count, warp, warps);
        Item* const sorted = target;
        target = source;
        source = sorted;
    }

    if (warp == 0 && lane_id() == 0) *usable = count;
    const u32 tiles = (count + 31) / 32;
    const size_t stride = 32 * (size_t)tiles;
    const float nan = __int_as_float(0x7fffffff);
    for (u32 tile = warp; tile < tiles; tile += warps) {
        const u32 i = tile * 32 + lane_id();
        const bool valid = i < count;
        const Point p = valid ? load_point(points, (u32)__ldcg(&items[i])) : Point{nan, nan, nan};
        xyz[i] = p.x;
        xyz[stride + i] = p.y;
        xyz[2 * stride + i] = p.z;
        keys[i] = valid ? INFINITE_KEY : 0;
        const Box box = warp_union(valid ? box_of(p) : empty_box());
        if (lane_id() == 0) {
            float* out = boxes + tile;
            out[0] = box.low.x;
            out[tiles] = box.low.y;
            out[2 * (size_t)tiles] = box.low.z;
            out[3 * (size_t)tiles] = box.high.x;
            out[4 * (size_t)tiles] = box.high.y;
            out[5 * (size_t)tiles] = box.high.z;
            tile_keys[tile] = INFINITE_KEY;
        }
    }
}
