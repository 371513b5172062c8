// Sparse convolution by gather, matrix product and scatter, one kernel offset at a time, as published: Graham et al.,
// CVPR 2018, section 4. The fallback where the tensor-core kernel cannot run, and the reference to check it against.
//
// An output row occurs at most once among the pairs of one offset and offsets run one after the other, so sums grow in
// a fixed order and need no atomics. HALF selects the storage type; products and sums are float32 (fused multiply-add).

#include "block.cuh"
#include "ptx.cuh"
#include "sites.cuh"

#if HALF
typedef unsigned short Element;
__device__ __forceinline__ float load(Element value) { return half_to_float(value); }
__device__ __forceinline__ Element store(float value) { return float_to_half(value); }
#else
typedef float Element;
__device__ __forceinline__ float load(Element value) { return value; }
__device__ __forceinline__ Element store(float value) { return value; }
#endif

constexpr int TILE = 64;  // pairs and output channels of a block
constexpr int DEEP = 16;  // input channels held at a time
constexpr int EACH = 4;   // pairs and channels of a thread

// The pairs of each offset (one block per offset), ascending by output row.
extern "C" __global__ void list_pairs(const int* __restrict__ neighbours, long long pitch, const int* __restrict__ count,
                                      int limit, int* __restrict__ in_rows, int* __restrict__ out_rows,
                                      int* __restrict__ pair_counts) {
    const int n = row_count(count, limit);
    const long long column = blockIdx.x * pitch;
    int listed = 0;
    for (int first = 0; first < n; first += blockDim.x) {
        const int row = first + threadIdx.x;
        const int source = row < n ? neighbours[column + row] : -1;
        int found;
        const int place = listed + block_exclusive_sum(source >= 0, found);
        if (source >= 0) {
            in_rows[column + place] = source;
            out_rows[column + place] = row;
        }
        listed += found;
    }
    if (threadIdx.x == 0) pair_counts[blockIdx.x] = listed;
}

// sums[out_rows[p]] += input[in_rows[p]] * weights for all pairs p of one offset. weights: (in_channels, out_channels).
extern "C" __global__ void __launch_bounds__(256)
    gather_gemm_scatter(const Element* __restrict__ input, const Element* __restrict__ weights,
                        const int* __restrict__ in_rows, const int* __restrict__ out_rows,
                        const int* __restrict__ pair_count, int in_channels, int out_channels,
                        float* __restrict__ sums) {
    __shared__ float a[DEEP][TILE + 1], b[DEEP][TILE];
    const int first = blockIdx.x * TILE, pairs = *pair_count - first;
    if (pairs <= 0) return;
    const int first_channel = blockIdx.y * TILE;
    const int pair = threadIdx.x / (TILE / EACH) * EACH, channel = threadIdx.x % (TILE / EACH) * EACH;
    float product[EACH][EACH] = {};
    for (int deep = 0; deep < in_channels; deep += DEEP) {
        for (int i = threadIdx.x; i < TILE * DEEP; i += blockDim.x) {
            const int row = i / DEEP, k = i % DEEP;
            const bool valid = row < pairs && deep + k < in_channels;
            a[k][row] = valid ? load(input[static_cast<long long>(in_rows[first + row]) * in_channels + deep + k]) : 0.0f;
        }
        for (int i = threadIdx.x; i < TILE * DEEP; i += blockDim.x) {
            const int k = i / TILE, column = i % TILE;
            const bool valid = deep + k < in_channels && first_channel + column < out_channels;
            b[k][column] =
                valid ? load(weights[static_cast<long long>(deep + k) * out_channels + first_channel + column]) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEEP; ++k)
#pragma unroll
            for (int i = 0; i < EACH; ++i)
#pragma unroll
                for (int j = 0; j < EACH; ++j) product[i][j] = fmaf(a[k][pair + i], b[k][channel + j], product[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < EACH && pair + i < pairs; ++i) {
        float* out = sums + static_cast<long long>(out_rows[first + pair + i]) * out_channels + first_channel;
        for (int j = 0; j < EACH && first_channel + channel + j < out_channels; ++j) out[channel + j] += product[i][j];
    }
}

// out = relu(sums + bias + residual)
extern "C" __global__ void finish(const float* __restrict__ sums, const float* __restrict__ bias,
                                  const Element* __restrict__ residual, Element* __restrict__ out,
                                  const int* __restrict__ count, int limit, int out_channels, int relu) {
    const long long values = static_cast<long long>(row_count(count, limit)) * out_channels;
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= values) return;
    float value = sums[i] + bias[i % out_channels];
    if (residual) value += load(residual[i]);
    out[i] = store(relu && value < 0.0f ? 0.0f : value);
}
