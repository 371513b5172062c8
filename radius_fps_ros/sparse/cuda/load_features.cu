// The network's input features, as the first layer reads them: type of the pass, channels padded with zeros.
// Macros: HALF_IN, HALF_OUT (float16 rather than float32).

#include "ptx.cuh"

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

constexpr int NOT_FINITE = 4;  // beside UNSORTED and DUPLICATE of rulebook.cu

extern "C" __global__ void load_features(const In* __restrict__ features, int n, int channels, Out* __restrict__ out,
                                         int width, int* __restrict__ faults) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= static_cast<long long>(n) * width) return;
    const int channel = i % width;
    const float value = channel < channels ? load(features[i / width * channels + channel]) : 0.0f;
    if (!(fabsf(value) < __int_as_float(0x7f800000))) atomicOr(faults, NOT_FINITE);
    out[i] = store(value);
}
