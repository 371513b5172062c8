// Active sites: int4 (batch, z, y, x), and their 64-bit keys, which grow in that order.

typedef long long Key;

// One convolution's shape, every triple in (z, y, x) order; the host passes it by value (see kernels.py).
struct Geometry {
    int kernel[3], stride[3], padding[3], dilation[3], in_shape[3], out_shape[3];
};

// How many rows there are: sizes known on the host come as `limit` alone, sizes that live on the device as a pointer
// too, and then `limit` is the capacity of the buffers.
__device__ __forceinline__ int row_count(const int* count, int limit) { return count ? min(*count, limit) : limit; }

// Key of the first site, x = 0, of the line (batch, z, y).
__device__ __forceinline__ Key line_key(int batch, int z, int y, const int (&shape)[3]) {
    return ((static_cast<Key>(batch) * shape[0] + z) * shape[1] + y) * shape[2];
}

// First position in the ascending keys[0, n) that is not below `key`.
__device__ __forceinline__ int lower_bound(const Key* __restrict__ keys, int n, Key key) {
    int low = 0;
    while (n > 0) {
        const int half = n >> 1;
        const bool right = keys[low + half] < key;
        low = right ? low + half + 1 : low;
        n = right ? n - half - 1 : half;
    }
    return low;
}
