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

// The same for a whole warp: 32 probes a round, so that a long list takes a few loads in a row instead of many.
__device__ __forceinline__ int warp_lower_bound(const Key* __restrict__ keys, int n, Key key) {
    const int lane = threadIdx.x & 31;
    int low = 0, high = n;
    while (low < high) {
        const long long width = high - low;
        const int probe = low + static_cast<int>((lane + 1) * width / 33);
        const int below = __popc(__ballot_sync(0xffffffffu, keys[probe] < key));
        const int last = __shfl_sync(0xffffffffu, probe, below - 1), next = __shfl_sync(0xffffffffu, probe, below);
        if (below > 0) low = last + 1;
        if (below < 32) high = next;
    }
    return low;
}

// The same for four groups of 8 lanes, each with a list and a key of its own; all of a warp's lanes take part.
__device__ __forceinline__ int group_lower_bound(const Key* __restrict__ keys, int n, Key key) {
    const int lane = threadIdx.x & 31, first = lane & 24;
    int low = 0, high = n;
    while (__any_sync(0xffffffffu, low < high)) {
        const long long width = high - low;
        const int probe = low + static_cast<int>((lane - first + 1) * width / 9);
        const unsigned ballot = __ballot_sync(0xffffffffu, low < high && keys[probe] < key);
        const int below = __popc(ballot >> first & 0xffu);
        const int last = __shfl_sync(0xffffffffu, probe, first + max(below - 1, 0));
        const int next = __shfl_sync(0xffffffffu, probe, first + min(below, 7));
        if (low == high) continue;
        if (below > 0) low = last + 1;
        if (below < 8) high = next;
    }
    return low;
}

enum { UNSORTED = 1, DUPLICATE = 2, NOT_FINITE = 4 };  // bits of the fault word

// Writes the key of site i, and to `faults` when it does not follow the one before (DUPLICATE: when it equals that).
__device__ __forceinline__ void encode_site(const int4* __restrict__ sites, int i, const int (&shape)[3],
                                            Key* __restrict__ keys, int* __restrict__ faults) {
    const int4 site = sites[i];
    const Key key = line_key(site.x, site.y, site.z, shape) + site.w;
    keys[i] = key;
    if (i == 0) return;
    const int4 before = sites[i - 1];
    const Key key_before = line_key(before.x, before.y, before.z, shape) + before.w;
    if (key_before >= key) atomicOr(faults, key_before == key ? DUPLICATE : UNSORTED);
}
