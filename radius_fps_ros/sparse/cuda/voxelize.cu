// Points to voxels, without a count that the host would have to know: a stable radix sort of the points by voxel, so
// that a voxel's points lie side by side in row order, and a prefix sum over the voxels. Positions are computed as on
// the CPU: float32, every operation rounded. Macro: HALF, the type of the means (float16 rather than float32).
//
// locate_points, sort_pass for each digit; mark_arrivals, find_cuts, count_kept, emit_voxels. The first two run with one
// number of blocks, count_kept and emit_voxels with another.

#include "block.cuh"
#include "ptx.cuh"
#include "radix_sort.cuh"
#include "sites.cuh"

#if HALF
typedef unsigned short Element;
__device__ __forceinline__ Element store(float value) { return float_to_half(value); }
#else
typedef float Element;
__device__ __forceinline__ Element store(float value) { return value; }
#endif

struct Grid {
    float minimum[3], maximum[3], size[3];  // (x, y, z)
    int cells[3];                           // (x, y, z)
    int shape[3];                           // (z, y, x)
};

constexpr int THREADS = 512, WARPS = THREADS / 32, DIGIT_BITS = 7;  // 28 bits, enough for most grids, in four passes
constexpr int AHEAD = 4;  // points and channels that a thread loads together, because it would wait for each
typedef DigitPlaces<THREADS, DIGIT_BITS> Places;

constexpr Key NO_VOXEL = 0x7fffffffffffffffLL;
constexpr int NO_CUT = 0x7fffffff;

struct __align__(16) Point {
    Key voxel;
    int row;
};

enum { INVALID, OUT_OF_RANGE, INSIDE, BAD_FEATURES, DROPPED_VOXELS, OVER_VOXEL_CAP, OVER_POINT_CAP, BAD_MEANS };

__device__ __forceinline__ bool finite(float value) { return fabsf(value) < __int_as_float(0x7f800000); }

__device__ __forceinline__ unsigned digit_of(Key key, int shift) {
    return static_cast<unsigned>(key >> shift) & (Places::DIGITS - 1);
}

// The run of this warp among n items.
__device__ __forceinline__ WarpRun warp_run(unsigned n) {
    return WarpRun(n, blockIdx.x * WARPS + threadIdx.x / 32, gridDim.x * WARPS);
}

__device__ __forceinline__ void add_to(int* counter, int value) {
    int total;
    block_exclusive_sum(value, total);
    if (threadIdx.x == 0 && total) atomicAdd(counter, total);
}

// The voxel of each point, counts of the lowest digits, and an empty arrivals bitmap. frame_starts: (frames + 1) first
// rows of the frames, null for one frame. counts: for each pass DIGITS for each block.
extern "C" __global__ void __launch_bounds__(THREADS)
    locate_points(const float* __restrict__ positions, const float* __restrict__ features, int channels, int n,
                  const int* __restrict__ frame_starts, int frames, Grid g, Point* __restrict__ points,
                  unsigned* __restrict__ arrivals, int passes, unsigned* __restrict__ counts,
                  int* __restrict__ counters) {
    __shared__ Places places;
    places.clear();
    int invalid = 0, outside = 0, located = 0, bad = 0;
    const WarpRun run = warp_run(n);
    for (unsigned i = run.begin + (threadIdx.x & 31); i < run.end; i += 32) {
        if (i % 32 == 0) arrivals[i / 32] = 0;
        bool known = true, inside = true;
        int cell[3];
        for (int axis = 0; axis < 3; ++axis) {
            const float value = positions[3LL * i + axis];
            known &= finite(value);
            inside &= value >= g.minimum[axis] && value < g.maximum[axis];
            const float quotient = __fdiv_rn(__fsub_rn(value, g.minimum[axis]), g.size[axis]);
            // Rounding may lift a point just below the maximum to the next cell; it belongs to the last one.
            cell[axis] = inside ? min(static_cast<int>(floorf(quotient)), g.cells[axis] - 1) : 0;
        }
        Key voxel = NO_VOXEL;
        if (inside) {
            int frame = 0;
            while (frame + 1 < frames && i >= frame_starts[frame + 1]) ++frame;
            voxel = line_key(frame, cell[2], cell[1], g.shape) + cell[0];
            bool good = true;
            for (int c = 0; c < channels; ++c) good &= finite(features[static_cast<long long>(i) * channels + c]);
            bad += !good;
            places.add(digit_of(voxel, 0));
        }
        invalid += !known;
        outside += known && !inside;
        located += inside;
        points[i] = {voxel, static_cast<int>(i)};
    }
    places.publish(counts);
    for (int pass = 1; pass < passes; ++pass)  // filled by the pass before each
        for (int digit = threadIdx.x; digit < Places::DIGITS; digit += THREADS)
            counts[(pass * gridDim.x + blockIdx.x) * Places::DIGITS + digit] = 0;
    add_to(&counters[INVALID], invalid);
    add_to(&counters[OUT_OF_RANGE], outside);
    add_to(&counters[INSIDE], located);
    add_to(&counters[BAD_FEATURES], bad);
}

// Sorts by one digit; leaves out the points without a voxel, whose number later passes get as `count` (null: none were
// left out yet). next_counts: the counts of the next digit, in the runs of the sorted points; null at the last digit.
extern "C" __global__ void __launch_bounds__(THREADS)
    sort_pass(const Point* __restrict__ points, const int* __restrict__ count, int limit, int shift,
              const unsigned* __restrict__ counts, Point* __restrict__ sorted, const int* __restrict__ inside,
              unsigned* __restrict__ next_counts) {
    __shared__ Places places;
    const WarpRun run = warp_run(row_count(count, limit));
    const unsigned block_share = WARPS * WarpRun::length(*inside, gridDim.x * WARPS);
    places.clear();
    for (unsigned i = run.begin + (threadIdx.x & 31); i < run.end; i += 32)
        if (points[i].voxel != NO_VOXEL) places.add(digit_of(points[i].voxel, shift));
    __syncthreads();
    places.find(counts);
    for (unsigned first = run.begin; first < run.end; first += 32) {
        const unsigned i = first + (threadIdx.x & 31);
        const Point point = i < run.end ? points[i] : Point{NO_VOXEL, 0};
        const bool valid = point.voxel != NO_VOXEL;
        const unsigned place = places.take(digit_of(point.voxel, shift), valid);
        if (!valid) continue;
        sorted[place] = point;
        if (next_counts)
            atomicAdd(&next_counts[place / block_share * Places::DIGITS + digit_of(point.voxel, shift + DIGIT_BITS)], 1u);
    }
}

__device__ __forceinline__ bool opens_voxel(const Point* points, int i) {
    return i == 0 || points[i - 1].voxel != points[i].voxel;
}

// The run of this block among n sorted points.
__device__ __forceinline__ int2 block_run(int n) {
    const long long share = (static_cast<long long>(n) + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share;
    return make_int2(static_cast<int>(min(begin, static_cast<long long>(n))),
                     static_cast<int>(min(begin + share, static_cast<long long>(n))));
}

// Sets the bit of every row whose point is the first of its voxel.
extern "C" __global__ void __launch_bounds__(THREADS)
    mark_arrivals(const Point* __restrict__ points, const int* __restrict__ inside, unsigned* __restrict__ arrivals) {
    const int2 run = block_run(*inside);
    for (int i = run.x + threadIdx.x; i < run.y; i += THREADS)
        if (opens_voxel(points, i)) atomicOr(&arrivals[points[i].row >> 5], 1u << (points[i].row & 31));
}

// Word w of the bitmap, as far as it lies in rows [begin, end).
__device__ __forceinline__ unsigned arrivals_in(const unsigned* arrivals, int w, int begin, int end) {
    unsigned bits = arrivals[w];
    if (w == begin >> 5) bits &= 0xffffffffu << (begin & 31);
    if (w == (end - 1) >> 5) bits &= 0xffffffffu >> (31 - ((end - 1) & 31));
    return bits;
}

// cuts[frame]: the row whose point opens the last voxel that is kept, the frame's `max_voxels`-th to arrive. One block a
// frame.
extern "C" __global__ void __launch_bounds__(1024)
    find_cuts(const unsigned* __restrict__ arrivals, int n, const int* __restrict__ frame_starts, int max_voxels,
              int* __restrict__ cuts) {
    const int frame = blockIdx.x;
    const int begin = frame_starts ? frame_starts[frame] : 0, end = frame_starts ? frame_starts[frame + 1] : n;
    const int first = begin >> 5, words = end > begin ? ((end - 1) >> 5) + 1 - first : 0;
    const int each = (words + static_cast<int>(blockDim.x) - 1) / static_cast<int>(blockDim.x);
    const int low = first + min(words, static_cast<int>(threadIdx.x) * each), high = min(first + words, low + each);
    int own = 0, total;
    for (int w = low; w < high; ++w) own += __popc(arrivals_in(arrivals, w, begin, end));
    int left = max_voxels - block_exclusive_sum(own, total);
    if (total <= max_voxels) {
        if (threadIdx.x == 0) cuts[frame] = NO_CUT;
        return;
    }
    if (left < 1 || left > own) return;
    for (int w = low; w < high; ++w) {
        unsigned bits = arrivals_in(arrivals, w, begin, end);
        const int here = __popc(bits);
        if (left > here) {
            left -= here;
            continue;
        }
        for (; left > 1; --left) bits &= bits - 1;
        cuts[frame] = w * 32 + __ffs(bits) - 1;
        return;
    }
}

__device__ __forceinline__ bool opens_kept_voxel(const Point* points, int i, const int* cuts, int frames,
                                                 const Grid& g) {
    if (!opens_voxel(points, i)) return false;
    const int frame = frames > 1 ? static_cast<int>(points[i].voxel / line_key(1, 0, 0, g.shape)) : 0;
    return points[i].row <= cuts[frame];
}

// How many of the points from i of n on belong to its voxel, at most `most`.
__device__ __forceinline__ int count_points(const Point* points, int i, int n, int most) {
    const Key voxel = points[i].voxel;
    int count = 1;
    while (count < most) {
        int more = 0;
        bool same = true;
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            const int next = i + count + j;
            same &= points[min(next, n - 1)].voxel == voxel && next < n && count + j < most;
            more += same;
        }
        count += more;
        if (more < AHEAD) break;
    }
    return count;
}

// How many points the voxel has that point i of n opens, and that has `known` of them at least.
__device__ __forceinline__ int count_all_points(const Point* points, int i, int n, int known) {
    const Key voxel = points[i].voxel;
    unsigned low = i + known - 1, high = i + known;  // `low` belongs to the voxel
    for (unsigned step = 2; high < n && points[high].voxel == voxel; step *= 2) {
        low = high;
        high = low + step;
    }
    high = min(high, static_cast<unsigned>(n));  // the first point of another voxel lies in (low, high]
    while (high - low > 1) {
        const unsigned middle = low + (high - low) / 2;
        (points[middle].voxel == voxel ? low : high) = middle;
    }
    return high - i;
}

// Voxels kept in each block's run, and what the caps of voxels leave out.
extern "C" __global__ void __launch_bounds__(THREADS)
    count_kept(const Point* __restrict__ points, const int* __restrict__ inside, const int* __restrict__ cuts, int frames,
               Grid g, int* __restrict__ kept_counts, int* __restrict__ counters) {
    const int n = *inside;
    const int2 run = block_run(n);
    int kept = 0, total;
    for (int i = run.x + threadIdx.x; i < run.y; i += THREADS) {
        if (opens_kept_voxel(points, i, cuts, frames, g)) {
            ++kept;
        } else if (opens_voxel(points, i)) {
            atomicAdd(&counters[DROPPED_VOXELS], 1);
            atomicAdd(&counters[OVER_VOXEL_CAP], count_all_points(points, i, n, 1));
        }
    }
    block_exclusive_sum(kept, total);
    if (threadIdx.x == 0) kept_counts[blockIdx.x] = total;
}

// Mean of the first `used` points from `points` on, added in row order; channels padded to `width` with zeros. Returns
// how many of the means are not finite.
__device__ int average(const Point* points, int used, const float* __restrict__ features, int channels, int width,
                       Element* __restrict__ means) {
    int bad = 0;
    for (int first = 0; first < width; first += AHEAD) {
        float sums[AHEAD] = {};
        for (int j = 0; j < used && first < channels; j += AHEAD) {
            float values[AHEAD][AHEAD];
#pragma unroll
            for (int p = 0; p < AHEAD; ++p) {
                const long long row = points[min(j + p, used - 1)].row;
#pragma unroll
                for (int c = 0; c < AHEAD; ++c) values[p][c] = features[row * channels + min(first + c, channels - 1)];
            }
#pragma unroll
            for (int p = 0; p < AHEAD; ++p)
#pragma unroll
                for (int c = 0; c < AHEAD; ++c)
                    if (j + p < used) sums[c] = __fadd_rn(sums[c], values[p][c]);
        }
#pragma unroll
        for (int c = 0; c < AHEAD; ++c) {
            if (first + c >= width) break;
            const float mean = first + c < channels ? __fdiv_rn(sums[c], static_cast<float>(used)) : 0.0f;
            bad += !finite(mean);
            means[first + c] = store(mean);
        }
    }
    return bad;
}

// Sites, their keys (null: not wanted) and the mean features (width a row) of the voxels kept, in ascending order.
// `out_count` gets how many were written, at most `capacity`; `required` how many there are.
extern "C" __global__ void __launch_bounds__(THREADS)
    emit_voxels(const Point* __restrict__ points, const int* __restrict__ inside, const int* __restrict__ cuts,
                int frames, Grid g, const int* __restrict__ kept_counts, const float* __restrict__ features, int channels,
                int max_points, int4* __restrict__ sites, Key* __restrict__ keys, Element* __restrict__ means, int width,
                int capacity, int* __restrict__ out_count, int* __restrict__ required, int* __restrict__ counters) {
    const int n = *inside;
    const int2 run = block_run(n);
    int part = 0, next;
    for (int block = threadIdx.x; block < blockIdx.x; block += THREADS) part += kept_counts[block];
    block_exclusive_sum(part, next);
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        const int all = next + kept_counts[blockIdx.x];
        *required = all;
        *out_count = min(all, capacity);
    }
    for (int first = run.x; first < run.y; first += THREADS) {
        const int i = first + threadIdx.x;
        const bool kept = i < run.y && opens_kept_voxel(points, i, cuts, frames, g);
        int total;
        const int voxel = next + block_exclusive_sum(kept, total);
        next += total;
        if (!kept) continue;
        const Key key = points[i].voxel;
        const int used = count_points(points, i, n, max_points);
        if (used == max_points) {
            const int over = count_all_points(points, i, n, used) - used;
            if (over) atomicAdd(&counters[OVER_POINT_CAP], over);
        }
        if (voxel >= capacity) continue;
        const Key line = key / g.shape[2], plane = line / g.shape[1];
        sites[voxel] = make_int4(static_cast<int>(plane / g.shape[0]), static_cast<int>(plane % g.shape[0]),
                                 static_cast<int>(line % g.shape[1]), static_cast<int>(key % g.shape[2]));
        if (keys) keys[voxel] = key;
        Element* mean = means + static_cast<long long>(voxel) * width;
        const int bad = average(points + i, used, features, channels, width, mean);
        if (bad) atomicAdd(&counters[BAD_MEANS], bad);
    }
}
