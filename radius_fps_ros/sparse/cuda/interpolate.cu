// Features at points between sites: trilinear over the eight corner sites, weights renormalised over the active ones,
// as in Tang et al., "Searching Efficient 3D Architectures with Sparse Point-Voxel Convolution", ECCV 2020 (SPVCNN's
// devoxelization). One warp per point: eight lanes each search one of the four lines that the corners lie on, then all
// lanes add up channels. Macro: HALF, the type of the features (float16 rather than float32).

#include "ptx.cuh"
#include "sites.cuh"

#if HALF
typedef unsigned short Element;
__device__ __forceinline__ float load(Element value) { return half_to_float(value); }
#else
typedef float Element;
__device__ __forceinline__ float load(Element value) { return value; }
#endif

// Features at sorted sites; the host passes it by value (see interpolate.py).
struct Level {
    const Element* features;  // `pitch` elements a row, of which `channels` count
    const Key* keys;
    const int* order;  // feature row of each key (null: the same)
    const int* count;  // see row_count
    int limit, pitch, channels, batch_size;
    int shape[3];              // (z, y, x)
    float shift[3], scale[3];  // site o is centred on voxel scale * o + shift, (z, y, x)
};

static_assert(sizeof(Level) == 88, "interpolate.py lays it out");

// For the whole warp: features at `position`, a continuous site index (z, y, x).
__device__ void interpolate_at(const float (&position)[3], int batch, const Level& level, float* __restrict__ out) {
    const int lane = threadIdx.x & 31, n = row_count(level.count, level.limit);
    const float low[3] = {floorf(position[0]), floorf(position[1]), floorf(position[2])};
    // Compared as floats first: a position beyond the integers, or NaN, must not be converted.
    auto inside = [&](float at, int axis) { return at >= 0.0f && at < static_cast<float>(level.shape[axis]); };

    // Where the sites from x on are, on the line of this lane's group.
    const float z = low[0] + (lane >> 4), y = low[1] + (lane >> 3 & 1);
    const bool near = batch >= 0 && batch < level.batch_size && inside(z, 0) && inside(y, 1) &&
                      (inside(low[2], 2) || inside(low[2] + 1.0f, 2));
    const int x = near ? max(static_cast<int>(low[2]), 0) : 0;
    const Key line = near ? line_key(batch, static_cast<int>(z), static_cast<int>(y), level.shape) : 0;
    const int begin = group_lower_bound(level.keys, near ? n : 0, line + x);

    // One lane for each corner.
    const int group = (lane >> 1 & 3) * 8;
    const bool reached = __shfl_sync(0xffffffffu, static_cast<int>(near), group);
    const Key corner_line = __shfl_sync(0xffffffffu, line, group);
    const int at = __shfl_sync(0xffffffffu, begin, group);
    int row = -1;
    float weight = 0.0f;
    if (lane < 8 && reached) {
        weight = 1.0f;
        for (int axis = 0; axis < 3; ++axis) {
            const float rest = position[axis] - low[axis];
            weight *= lane >> (2 - axis) & 1 ? rest : 1.0f - rest;
        }
        const float cell = low[2] + (lane & 1);
        if (weight > 0.0f && inside(cell, 2)) {
            const Key key = corner_line + static_cast<int>(cell);
            const Key here = at < n ? level.keys[at] : -1, next = at + 1 < n ? level.keys[at + 1] : -1;
            if (here == key || next == key) row = here == key ? at : at + 1;
            if (level.order && row >= 0) row = level.order[row];
        }
        if (row < 0) weight = 0.0f;
    }
    float total = 0.0f;
    for (int corner = 0; corner < 8; ++corner) total += __shfl_sync(0xffffffffu, weight, corner);
    for (int first = 0; first < level.channels; first += 32) {
        const int channel = first + lane;
        float values[8], shares[8], sum = 0.0f;
#pragma unroll
        for (int corner = 0; corner < 8; ++corner) {  // all loads before the first use
            const int from = __shfl_sync(0xffffffffu, row, corner);
            shares[corner] = __shfl_sync(0xffffffffu, weight, corner);
            const bool read = from >= 0 && channel < level.channels;
            values[corner] = read ? load(level.features[static_cast<long long>(from) * level.pitch + channel]) : 0.0f;
        }
#pragma unroll
        for (int corner = 0; corner < 8; ++corner) sum += shares[corner] * values[corner];
        if (channel < level.channels) out[channel] = total > 0.0f ? sum / total : 0.0f;
    }
}

// positions: (points, 3) continuous site index (z, y, x).
extern "C" __global__ void interpolate(Level level, const float* __restrict__ positions,
                                       const int* __restrict__ batch_index, int points, float* __restrict__ out) {
    const int point = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (point >= points) return;
    const float position[3] = {positions[3LL * point], positions[3LL * point + 1], positions[3LL * point + 2]};
    interpolate_at(position, batch_index[point], level, out + static_cast<long long>(point) * level.channels);
}

constexpr int MAX_LEVELS = 8;

struct Levels {
    Level level[MAX_LEVELS];
    float minimum[3], size[3];  // of the voxel grid, (x, y, z) in metres
};

// records: x, y, z and the features of all levels, `width` floats, of the point that each of `samples` names; zeros
// where it names none of the n. blockIdx.y: the level. Rounded operation by operation, as array arithmetic is.
extern "C" __global__ void gather_samples(Levels levels, const float* __restrict__ points, int n,
                                          const long long* __restrict__ samples, int count,
                                          float* __restrict__ records, int width) {
    const int sample = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (sample >= count) return;
    const Level& level = levels.level[blockIdx.y];
    float* record = records + static_cast<long long>(sample) * width;
    float* out = record + 3;
    for (int before = 0; before < blockIdx.y; ++before) out += levels.level[before].channels;
    const long long row = samples[sample];
    const bool known = row >= 0 && row < n;
    if (blockIdx.y == 0 && lane < 3) record[lane] = known ? points[3 * row + lane] : 0.0f;
    if (!known) {
        for (int channel = lane; channel < level.channels; channel += 32) out[channel] = 0.0f;
        return;
    }
    // Each lane works out one axis (z, y, x).
    const int axis = lane % 3, metres = 2 - axis;
    const float offset = __fsub_rn(points[3 * row + metres], levels.minimum[metres]);
    const float voxel = __fsub_rn(__fdiv_rn(offset, levels.size[metres]), 0.5f);
    const float own = __fdiv_rn(__fsub_rn(voxel, level.shift[axis]), level.scale[axis]);
    const float position[3] = {__shfl_sync(0xffffffffu, own, 0), __shfl_sync(0xffffffffu, own, 1),
                               __shfl_sync(0xffffffffu, own, 2)};
    interpolate_at(position, 0, level, out);
}
