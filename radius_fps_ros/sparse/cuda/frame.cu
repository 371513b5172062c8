// What enters and leaves the captured pass of a network: the frame's sites and features, and the results.
// Macros: HALF_IN, HALF_OUT (float16 rather than float32) for load_frame.

#include "ptx.cuh"
#include "sites.cuh"

#if HALF_IN
typedef unsigned short In;
__device__ __forceinline__ float load(In value) { return half_to_float(value); }
#else
typedef float In;
__device__ __forceinline__ float load(In value) { return value; }
#endif
#if HALF_OUT
typedef unsigned short Out;
__device__ __forceinline__ Out store(float value) { return float_to_half(value); }
#else
typedef float Out;
__device__ __forceinline__ Out store(float value) { return value; }
#endif

// Copies the sites with their keys, and the features as the first layer reads them: type of the pass, channels padded
// to `width` with zeros.
extern "C" __global__ void load_frame(const int4* __restrict__ sites, const In* __restrict__ features, int n,
                                      int channels, Geometry g, int4* __restrict__ own_sites, Key* __restrict__ keys,
                                      Out* __restrict__ own_features, int width, int* __restrict__ count,
                                      int* __restrict__ faults) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i == 0) *count = n;
    if (i < n) {
        own_sites[i] = sites[i];
        encode_site(sites, static_cast<int>(i), g.in_shape, keys, faults);
    }
    if (i >= static_cast<long long>(n) * width) return;
    const int channel = i % width;
    const float value = channel < channels ? load(features[i / width * channels + channel]) : 0.0f;
    if (!(fabsf(value) < __int_as_float(0x7f800000))) atomicOr(faults, NOT_FINITE);
    own_features[i] = store(value);
}

// Buffers to copy, each as many rows as its count says.
struct Copies {
    const uint4* from[8];
    uint4* to[8];
    const int* count[8];
    int words[8];  // 16-byte words of a row
};

// One buffer for each blockIdx.y; counts never exceed the buffers' capacity.
extern "C" __global__ void store_results(Copies copies) {
    const uint4* from = copies.from[blockIdx.y];
    uint4* to = copies.to[blockIdx.y];
    const long long words = static_cast<long long>(*copies.count[blockIdx.y]) * copies.words[blockIdx.y];
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < words;
         i += static_cast<long long>(gridDim.x) * blockDim.x)
        to[i] = from[i];
}
