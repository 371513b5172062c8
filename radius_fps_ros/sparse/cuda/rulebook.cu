// Rulebooks on the device: keys of sites, sorted output sites of a strided convolution, neighbour tables.
// Graham et al., "3D Semantic Segmentation with Submanifold Sparse Convolutional Networks", CVPR 2018, section 3.
//
// The input sites are sorted, so everything is found by binary search and nothing is hashed. The output sites come out
// sorted without a sort: a tile is a run of output lines (all x at one (batch, z, y)); the inputs that reach it lie in
// one contiguous run per kernel plane; they set bits in a bitmap in shared memory, and the bits' ranks are the rows.

#include "sites.cuh"
#include "block.cuh"

constexpr int PLANES = 32;  // kernel planes whose input runs are searched at a time
constexpr int GROUP = 256;  // tiles whose counts are also summed, so that no separate scan is needed

// Keys of the sites, and what is wrong with them.
extern "C" __global__ void encode_sites(const int4* __restrict__ sites, int n, Geometry g, Key* __restrict__ keys,
                                        int* __restrict__ faults) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) encode_site(sites, i, g.in_shape, keys, faults);
}

// A run of output lines, cut along x only when one line alone fills the bitmap.
struct Tiling {
    int lines;   // output lines of a tile
    int words;   // 32-bit words of one line in a tile
    int groups;  // tiles along y
    int chunks;  // tiles along x
};

struct Tile {
    int batch, z, y, x;
};

__device__ __forceinline__ Tile tile_at(int index, const Tiling& t, const Geometry& g) {
    const int chunk = index % t.chunks, line_group = index / t.chunks;
    const int plane = line_group / t.groups;
    return {plane / g.out_shape[0], plane % g.out_shape[0], line_group % t.groups * t.lines, chunk * t.words * 32};
}

// Outputs [first, last] of one axis that may read input `position`; with dilation some of them do not.
struct Reach {
    int first, last;
};

__device__ __forceinline__ int divided(int value, int stride) {  // the usual strides without a division
    return stride == 1 ? value : stride == 2 ? value >> 1 : value / stride;
}

__device__ __forceinline__ Reach reach(int position, int axis, const Geometry& g) {
    const int high = position + g.padding[axis], low = high - (g.kernel[axis] - 1) * g.dilation[axis];
    const int stride = g.stride[axis];
    return {low <= 0 ? 0 : divided(low + stride - 1, stride), min(divided(high, stride), g.out_shape[axis] - 1)};
}

__device__ __forceinline__ bool reads(int out, int position, int axis, const Geometry& g) {
    return g.dilation[axis] == 1 || (position + g.padding[axis] - out * g.stride[axis]) % g.dilation[axis] == 0;
}

// Sets the bit of every output site of `tile` that input `site` contributes to.
__device__ __forceinline__ void mark_site(const int4& site, const Tile& tile, const Tiling& t, const Geometry& g,
                                          unsigned* bitmap) {
    const Reach lines = reach(site.z, 1, g), columns = reach(site.w, 2, g);
    const int first = max(columns.first, tile.x), last = min(columns.last, tile.x + t.words * 32 - 1);
    for (int y = max(lines.first, tile.y); y <= min(lines.last, tile.y + t.lines - 1); ++y) {
        if (!reads(y, site.z, 1, g)) continue;
        for (int x = first; x <= last; ++x)
            if (reads(x, site.w, 2, g))
                atomicOr(&bitmap[(y - tile.y) * t.words + ((x - tile.x) >> 5)], 1u << ((x - tile.x) & 31));
    }
}

// Fills the tile's bitmap; false (for all threads) when no input can reach the tile.
__device__ bool mark_tile(const Tile& tile, const Tiling& t, const Geometry& g, const int4* __restrict__ sites,
                          const Key* __restrict__ keys, int n, unsigned* bitmap) {
    __shared__ int begin[PLANES], end[PLANES];
    const int y_low = max(0, tile.y * g.stride[1] - g.padding[1]);
    const int y_high = min(g.in_shape[1] - 1, (tile.y + t.lines - 1) * g.stride[1] - g.padding[1] +
                                                  (g.kernel[1] - 1) * g.dilation[1]);
    bool reached = false;
    for (int first = 0; first < g.kernel[0]; first += PLANES) {
        const int planes = min(PLANES, g.kernel[0] - first);
        for (int i = threadIdx.x >> 5; i < 2 * planes; i += blockDim.x >> 5) {
            const int plane = i >> 1;
            const int z = tile.z * g.stride[0] - g.padding[0] + (first + plane) * g.dilation[0];
            const bool inside = z >= 0 && z < g.in_shape[0] && y_low <= y_high;
            const int y = i & 1 ? y_high + 1 : y_low;  // y_high + 1 may be H: its key is the next plane's first
            const int found = inside ? warp_lower_bound(keys, n, line_key(tile.batch, z, y, g.in_shape)) : 0;
            if ((threadIdx.x & 31) == 0) (i & 1 ? end : begin)[plane] = found;
        }
        __syncthreads();
        bool any = false;
        for (int plane = 0; plane < planes; ++plane) any |= begin[plane] < end[plane];
        if (any && !reached) {
            for (int i = threadIdx.x; i < t.lines * t.words; i += blockDim.x) bitmap[i] = 0;
            reached = true;
            __syncthreads();
        }
        for (int plane = 0; plane < planes; ++plane)
            for (int i = begin[plane] + threadIdx.x; i < end[plane]; i += blockDim.x)
                mark_site(sites[i], tile, t, g, bitmap);
        __syncthreads();
    }
    return reached;
}

// The words of the bitmap that this thread counts and emits: a contiguous run, so that ranks follow the site order.
__device__ __forceinline__ int2 own_words(const Tiling& t) {
    const int words = t.lines * t.words, each = (words + blockDim.x - 1) / blockDim.x;
    return make_int2(min(words, static_cast<int>(threadIdx.x) * each), min(words, (static_cast<int>(threadIdx.x) + 1) * each));
}

__device__ __forceinline__ int count_bits(const unsigned* bitmap, int2 words) {
    int bits = 0;
    for (int w = words.x; w < words.y; ++w) bits += __popc(bitmap[w]);
    return bits;
}

// Number of output sites of each tile; group_counts (zero before) sums them by GROUP tiles.
extern "C" __global__ void count_outputs(const int4* __restrict__ sites, const Key* __restrict__ keys,
                                         const int* __restrict__ count, int limit, Geometry g, Tiling t,
                                         int* __restrict__ tile_counts, int* __restrict__ group_counts) {
    extern __shared__ unsigned bitmap[];
    const int index = blockIdx.x;
    const Tile tile = tile_at(index, t, g);
    int total = 0;
    if (mark_tile(tile, t, g, sites, keys, row_count(count, limit), bitmap))
        block_exclusive_sum(count_bits(bitmap, own_words(t)), total);
    if (threadIdx.x != 0) return;
    tile_counts[index] = total;
    if (total) atomicAdd(&group_counts[index / GROUP], total);
}

// Writes the output sites and their keys in order. `out_count` gets how many were written, at most `capacity`;
// `required` how many there are, so that the host sees when they did not fit.
extern "C" __global__ void emit_outputs(const int4* __restrict__ sites, const Key* __restrict__ keys,
                                        const int* __restrict__ count, int limit, Geometry g, Tiling t,
                                        const int* __restrict__ tile_counts, const int* __restrict__ group_counts,
                                        int4* __restrict__ out_sites, Key* __restrict__ out_keys, int capacity,
                                        int* __restrict__ out_count, int* __restrict__ required) {
    extern __shared__ unsigned bitmap[];
    const int index = blockIdx.x, own = tile_counts[index];
    const bool last = index == gridDim.x - 1;
    if (own == 0 && !last) return;
    const int group = index / GROUP;
    int part = 0, base;
    for (int i = threadIdx.x; i < group; i += blockDim.x) part += group_counts[i];
    for (int i = group * GROUP + threadIdx.x; i < index; i += blockDim.x) part += tile_counts[i];
    block_exclusive_sum(part, base);
    if (last && threadIdx.x == 0) {
        *required = base + own;
        *out_count = min(base + own, capacity);
    }
    const Tile tile = tile_at(index, t, g);
    if (own == 0 || !mark_tile(tile, t, g, sites, keys, row_count(count, limit), bitmap)) return;
    const int2 words = own_words(t);
    int total;
    int row = base + block_exclusive_sum(count_bits(bitmap, words), total);
    for (int w = words.x; w < words.y; ++w) {
        if (bitmap[w] == 0) continue;
        const int y = tile.y + w / t.words, x = tile.x + w % t.words * 32;
        const Key key = line_key(tile.batch, tile.z, y, g.out_shape) + x;
        for (unsigned bits = bitmap[w]; bits && row < capacity; bits &= bits - 1, ++row) {
            const int bit = __ffs(bits) - 1;
            out_sites[row] = make_int4(tile.batch, tile.z, y, x + bit);
            out_keys[row] = key + bit;
        }
    }
}

// Smallest and largest `key` of the block's threads; a thread without one passes (max, min) of the type.
__device__ __forceinline__ void block_range(Key& low, Key& high) {
    __shared__ Key lows[32], highs[32];
    for (int step = 16; step > 0; step >>= 1) {
        low = min(low, __shfl_xor_sync(0xffffffffu, low, step));
        high = max(high, __shfl_xor_sync(0xffffffffu, high, step));
    }
    if ((threadIdx.x & 31) == 0) {
        lows[threadIdx.x >> 5] = low;
        highs[threadIdx.x >> 5] = high;
    }
    __syncthreads();
    for (int w = 0; w < blockDim.x >> 5; ++w) {
        low = min(low, lows[w]);
        high = max(high, highs[w]);
    }
}

// neighbours[k][o]: the input row that kernel offset k brings to output row o, or -1. One thread finds a whole kernel
// line (kz, ky): its sites lie side by side in the sorted keys, and those of a block of rows close together, so two
// searches by whole warps leave little for each thread to search. `order` maps sorted positions to input rows (null:
// the same); `grid`, where given, holds the input row of every cell and replaces the search.
extern "C" __global__ void find_neighbours(const int4* __restrict__ out_sites, const int* __restrict__ out_count,
                                           int out_limit, const Key* __restrict__ keys, const int* __restrict__ order,
                                           const int* __restrict__ grid, const int* __restrict__ count, int limit,
                                           Geometry g, int* __restrict__ neighbours, long long pitch) {
    __shared__ int bounds[2];
    const int rows = row_count(out_count, out_limit), n = row_count(count, limit);
    if (blockIdx.x * blockDim.x >= rows) return;
    const int row = min(static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), rows - 1);  // spare threads repeat it
    const int kz = blockIdx.y / g.kernel[1], ky = blockIdx.y % g.kernel[1];
    const int4 site = out_sites[row];
    const int z = site.y * g.stride[0] - g.padding[0] + kz * g.dilation[0];
    const int y = site.z * g.stride[1] - g.padding[1] + ky * g.dilation[1];
    const int x = site.w * g.stride[2] - g.padding[2];
    const bool inside = z >= 0 && z < g.in_shape[0] && y >= 0 && y < g.in_shape[1];
    const Key line = line_key(site.x, z, y, g.in_shape), start = line + max(x, 0);
    int position = 0, end = 0;
    if (!grid) {
        Key low = inside ? start : 0x7fffffffffffffffLL, high = inside ? start : -1;
        block_range(low, high);
        if (threadIdx.x < 64) {
            const int found = low > high ? 0 : warp_lower_bound(keys, n, threadIdx.x < 32 ? low : high);
            if ((threadIdx.x & 31) == 0) bounds[threadIdx.x >> 5] = found;
        }
        __syncthreads();
        position = bounds[0] + lower_bound(keys + bounds[0], inside ? bounds[1] - bounds[0] : 0, start);
        end = n;
    }
    int* out = neighbours + static_cast<long long>(blockIdx.y) * g.kernel[2] * pitch + row;
    for (int kx = 0; kx < g.kernel[2]; ++kx, out += pitch) {
        const int in_x = x + kx * g.dilation[2];
        int found = -1;
        if (inside && in_x >= 0 && in_x < g.in_shape[2]) {
            if (grid) {
                found = grid[line + in_x];
            } else {
                while (position < end && keys[position] < line + in_x) ++position;
                if (position < end && keys[position] == line + in_x) found = order ? order[position] : position;
            }
        }
        *out = found;
    }
}

// Puts every row into its cell of the look-up grid.
extern "C" __global__ void fill_grid(const Key* __restrict__ keys, int n, int* __restrict__ grid) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) grid[keys[i]] = i;
}

// Empties the cells again, and reports a site that another row had overwritten.
extern "C" __global__ void clear_grid(const Key* __restrict__ keys, int n, int* __restrict__ grid,
                                      int* __restrict__ faults) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (grid[keys[i]] == i)
        grid[keys[i]] = -1;
    else
        atomicOr(faults, DUPLICATE);
}
