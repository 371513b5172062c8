// Features at points between sites: trilinear over the eight corner sites, weights renormalised over the active ones,
// as in Tang et al., "Searching Efficient 3D Architectures with Sparse Point-Voxel Convolution", ECCV 2020 (SPVCNN's
// devoxelization). One warp per point: eight lanes find the corners, then all lanes add up channels.

#include "ptx.cuh"
#include "sites.cuh"

#if HALF
typedef unsigned short Element;
__device__ __forceinline__ float load(Element value) { return half_to_float(value); }
#else
typedef float Element;
__device__ __forceinline__ float load(Element value) { return value; }
#endif

// positions: (points, 3) continuous site index (z, y, x). `order` maps sorted keys to feature rows (null: the same).
extern "C" __global__ void interpolate(const Element* __restrict__ features, int channels, const Key* __restrict__ keys,
                                       const int* __restrict__ order, int n, Geometry g, int batch_size,
                                       const float* __restrict__ positions, const int* __restrict__ batch_index,
                                       int points, float* __restrict__ out) {
    const int point = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (point >= points) return;
    const int batch = batch_index[point];
    int row = -1;
    float weight = 0.0f;
    if (lane < 8 && batch >= 0 && batch < batch_size) {
        weight = 1.0f;
        int cell[3];
        for (int axis = 0; axis < 3; ++axis) {
            const float position = positions[3LL * point + axis], low = floorf(position), rest = position - low;
            const int up = lane >> (2 - axis) & 1;
            // Compared as floats first: a position beyond the integers, or NaN, must not be converted.
            const bool inside = low + up >= 0.0f && low + up < static_cast<float>(g.in_shape[axis]);
            weight *= inside ? (up ? rest : 1.0f - rest) : 0.0f;
            cell[axis] = inside ? static_cast<int>(low) + up : 0;
        }
        if (weight > 0.0f) {
            const Key key = line_key(batch, cell[0], cell[1], g.in_shape) + cell[2];
            const int at = lower_bound(keys, n, key);
            if (at < n && keys[at] == key) row = order ? order[at] : at;
        }
        if (row < 0) weight = 0.0f;
    }
    float total = 0.0f;
    for (int corner = 0; corner < 8; ++corner) total += __shfl_sync(0xffffffffu, weight, corner);
    for (int first = 0; first < channels; first += 32) {
        const int channel = first + lane;
        float sum = 0.0f;
        for (int corner = 0; corner < 8; ++corner) {
            const int from = __shfl_sync(0xffffffffu, row, corner);
            const float share = __shfl_sync(0xffffffffu, weight, corner);
            if (from >= 0 && channel < channels)
                sum += share * load(features[static_cast<long long>(from) * channels + channel]);
        }
        if (channel < channels) out[static_cast<long long>(point) * channels + channel] = total > 0.0f ? sum / total : 0.0f;
    }
}
