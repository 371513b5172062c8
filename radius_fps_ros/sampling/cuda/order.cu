// Sorts the finite points of a cloud along a space-filling curve or by spherical voxels, and cuts them into tiles of 32
// with their boxes. One cooperative launch: encode, least-significant-digit radix sort, gather. Stable, so that it is
// deterministic.
#include "curves.cuh"
#include "grid.cuh"
#include "radix_sort.cuh"

#ifndef SPHERICAL
#define SPHERICAL 0  // 0: Hilbert curve, 1: spherical voxels
#endif

constexpr int THREADS = 512, WARPS = THREADS / 32, DIGIT_BITS = 8;

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
// everyone. A thread looks for one point; where most rows are not finite, at several places.
__device__ Curve fit_curve(const float* points, u32 n, u32 resolution) {
    constexpr u32 TRIES = 4;
    // Odd: an even one can meet the same beam of a scan every time.
    const u32 step = (n + TRIES * THREADS - 1) / (TRIES * THREADS) | 1;
    Point p = {0.0f, 0.0f, 0.0f};
    bool valid = false;
    for (u32 i = 0; i < TRIES && !valid; ++i) {
        const u32 stretch = (threadIdx.x + i * (THREADS / TRIES)) % THREADS;
        const u64 row = (u64)(stretch * TRIES + i) * step;
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

__shared__ DigitPlaces<THREADS, DIGIT_BITS> places;

__device__ u32 digit_of(Item item, int shift) { return (u32)(item >> shift) & (places.DIGITS - 1); }

__device__ void count_digits(const Item* items, WarpRun run, int shift) {
    places.clear();
    for (u32 i = run.begin + lane_id(); i < run.end; i += 32)
        if (items[i] != NOT_FINITE) places.add(digit_of(items[i], shift));
}

__device__ void scatter(const Item* items, Item* sorted, WarpRun run, int shift) {
    for (u32 first = run.begin; first < run.end; first += 32) {
        const u32 i = first + lane_id();
        const Item item = i < run.end ? items[i] : NOT_FINITE;
        const bool valid = item != NOT_FINITE;
        const u32 place = places.take(digit_of(item, shift), valid);
        if (valid) sorted[place] = item;
    }
}

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

    WarpRun run(count, warp, warps);
    for (u32 i = run.begin + lane_id(); i < run.end; i += 32) {
        const Point p = load_point(points, i);
        source[i] = is_finite(p) ? (u64)curve.code(p) << 32 | i : NOT_FINITE;
    }
    for (int pass = 0; pass < passes; ++pass) {
        const int shift = 32 + pass * DIGIT_BITS;
        count_digits(source, run, shift);
        places.publish(counts);
        grid_barrier(arrivals, expected);
        count = places.find(counts);
        scatter(source, target, run, shift);
        grid_barrier(arrivals, expected);
        run = WarpRun(count, warp, warps);
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
