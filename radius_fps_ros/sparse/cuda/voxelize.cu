// Points to voxels. The host sorts the points' voxel keys (stable, so a voxel's points stay in row order) and runs the
// prefix sums; these kernels do the rest. Positions are computed as on the CPU: float32, every operation rounded.

#include "sites.cuh"

struct Grid {
    float minimum[3], maximum[3], size[3];  // (x, y, z)
    int cells[3];                           // (x, y, z)
    int shape[3];                           // (z, y, x)
};

constexpr Key NO_VOXEL = 0x7fffffffffffffffLL;  // sorts behind all voxels

enum { INVALID, OUT_OF_RANGE, BAD_FEATURES, VOXELS, DROPPED_VOXELS, OVER_VOXEL_CAP, OVER_POINT_CAP };

__device__ __forceinline__ bool finite(float value) { return fabsf(value) < __int_as_float(0x7f800000); }

// Key of each point's voxel. frame_starts: (frames + 1) first rows of the frames.
extern "C" __global__ void locate_points(const float* __restrict__ points, const float* __restrict__ features,
                                         int channels, int n, const int* __restrict__ frame_starts, int frames, Grid g,
                                         Key* __restrict__ keys, int* __restrict__ counters) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    bool known = true, inside = true;
    int cell[3];
    for (int axis = 0; axis < 3; ++axis) {
        const float value = points[3LL * i + axis];
        known &= finite(value);
        inside &= value >= g.minimum[axis] && value < g.maximum[axis];
        const float quotient = __fdiv_rn(__fsub_rn(value, g.minimum[axis]), g.size[axis]);
        // Rounding may lift a point just below the maximum to the next cell; it belongs to the last one.
        cell[axis] = inside ? min(static_cast<int>(floorf(quotient)), g.cells[axis] - 1) : 0;
    }
    Key key = NO_VOXEL;
    if (inside) {
        int frame = 0;
        while (frame + 1 < frames && i >= frame_starts[frame + 1]) ++frame;
        key = line_key(frame, cell[2], cell[1], g.shape) + cell[0];
        bool good = true;
        for (int c = 0; c < channels; ++c) good &= finite(features[static_cast<long long>(i) * channels + c]);
        if (!good) atomicAdd(&counters[BAD_FEATURES], 1);
    } else {
        atomicAdd(&counters[known ? OUT_OF_RANGE : INVALID], 1);
    }
    keys[i] = key;
}

__device__ __forceinline__ bool opens_voxel(const Key* keys, int i) {
    return keys[i] != NO_VOXEL && (i == 0 || keys[i - 1] != keys[i]);
}

// arrivals[row] = 1 where the point at `row` is its voxel's first. keys are sorted, order[i] is the row of keys[i].
extern "C" __global__ void mark_arrivals(const Key* __restrict__ keys, const long long* __restrict__ order, int n,
                                         int* __restrict__ arrivals) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) arrivals[order[i]] = opens_voxel(keys, i);
}

// kept[i] = 1 where keys[i] opens a voxel among the first `max_voxels` to arrive in its frame.
// arrived: inclusive prefix sum of the arrivals.
extern "C" __global__ void keep_voxels(const Key* __restrict__ keys, const long long* __restrict__ order, int n,
                                       const int* __restrict__ frame_starts, Grid g, const int* __restrict__ arrived,
                                       int max_voxels, int* __restrict__ kept, int* __restrict__ counters) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    bool keep = false;
    if (opens_voxel(keys, i)) {
        const int frame = static_cast<int>(keys[i] / line_key(1, 0, 0, g.shape));
        const int start = frame_starts[frame];
        keep = arrived[order[i]] - (start > 0 ? arrived[start - 1] : 0) <= max_voxels;
        const int points = lower_bound(keys + i, n - i, keys[i] + 1);
        if (!keep) {
            atomicAdd(&counters[DROPPED_VOXELS], 1);
            atomicAdd(&counters[OVER_VOXEL_CAP], points);
        }
    }
    kept[i] = keep;
}

// Sites and mean features of the voxels kept. place: inclusive prefix sum of `kept`.
extern "C" __global__ void average_points(const Key* __restrict__ keys, const long long* __restrict__ order, int n,
                                          Grid g, const int* __restrict__ kept, const int* __restrict__ place,
                                          const float* __restrict__ features, int channels, int max_points,
                                          int4* __restrict__ sites, float* __restrict__ means,
                                          int* __restrict__ counters) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (i == n - 1) counters[VOXELS] = place[i];
    if (!kept[i]) return;
    const int voxel = place[i] - 1;
    const int points = lower_bound(keys + i, n - i, keys[i] + 1), used = min(points, max_points);
    if (points > used) atomicAdd(&counters[OVER_POINT_CAP], points - used);
    const Key line = keys[i] / g.shape[2], plane = line / g.shape[1];
    sites[voxel] = make_int4(static_cast<int>(plane / g.shape[0]), static_cast<int>(plane % g.shape[0]),
                             static_cast<int>(line % g.shape[1]), static_cast<int>(keys[i] % g.shape[2]));
    for (int c = 0; c < channels; ++c) {
        float sum = 0.0f;
        for (int j = 0; j < used; ++j) sum = __fadd_rn(sum, features[order[i + j] * channels + c]);
        means[static_cast<long long>(voxel) * channels + c] = __fdiv_rn(sum, static_cast<float>(used));
    }
}
