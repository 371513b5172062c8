// Building the tree of tree.cuh: sort keys along a Hilbert curve, then boxes from the leaves up.
#include "tree.cuh"

constexpr int BITS = 20;  // of a cell number: 2^20 cells an axis

// J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004): cell to position on the curve.
__device__ __forceinline__ unsigned long long hilbert_key(unsigned (&x)[3]) {
    for (unsigned side = 1u << (BITS - 1); side > 1; side >>= 1)
#pragma unroll
        for (int axis = 0; axis < 3; ++axis) {
            const unsigned swap = x[axis] & side ? 0 : (x[0] ^ x[axis]) & (side - 1);
            if (x[axis] & side) x[0] ^= side - 1;
            x[0] ^= swap;
            x[axis] ^= swap;
        }
    x[1] ^= x[0];
    x[2] ^= x[1];
    unsigned flip = 0;
    for (unsigned side = 1u << (BITS - 1); side > 1; side >>= 1)
        if (x[2] & side) flip ^= side - 1;
    unsigned long long key = 0;
    for (int bit = BITS - 1; bit >= 0; --bit)
        for (int axis = 0; axis < 3; ++axis) key = key << 1 | ((x[axis] ^ flip) >> bit & 1);
    return key;
}

// Position of each face's centre on the curve through the cube of half-width `reach` around the frame's origin.
extern "C" __global__ void curve_keys(const Mesh mesh, const Frame frame, double reach, unsigned long long* keys) {
    const int face = blockIdx.x * blockDim.x + threadIdx.x;
    if (face >= mesh.count) return;
    const Triangle t = load_triangle(mesh, face, frame);
    const Vector<double> centre = t.a + t.b + t.c;
    const double cells = static_cast<double>(1u << BITS), per_unit = reach > 0.0 ? cells / (6.0 * reach) : 0.0;
    const auto cell = [&](double c) {
        return static_cast<unsigned>(fmin(fmax((c + 3.0 * reach) * per_unit, 0.0), cells - 1.0));
    };
    unsigned x[3] = {cell(centre.x), cell(centre.y), cell(centre.z)};
    keys[face] = hilbert_key(x);
}

extern "C" __global__ void sort_faces(const int* faces, const long long* order, int count, int* sorted) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int* face = faces + 3 * order[i];
    for (int corner = 0; corner < 3; ++corner) sorted[3 * static_cast<long long>(i) + corner] = face[corner];
}

__device__ __forceinline__ void store_boxes(float4* nodes, int node, const float (&low)[4][3], const float (&high)[4][3]) {
    float4* n = nodes + NODE * static_cast<long long>(node);
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        n[axis] = make_float4(low[0][axis], low[1][axis], low[2][axis], low[3][axis]);
        n[3 + axis] = make_float4(high[0][axis], high[1][axis], high[2][axis], high[3][axis]);
    }
}

__device__ __forceinline__ float largest_of(float4 v) { return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)); }
__device__ __forceinline__ float smallest_of(float4 v) { return fminf(fminf(v.x, v.y), fminf(v.z, v.w)); }

// Rows and leaf nodes of four triangles each.
extern "C" __global__ void build_leaves(const Mesh mesh, const Frame frame, int first_leaf, float4* nodes, float4* rows) {
    const int leaf = blockIdx.x * blockDim.x + threadIdx.x;
    if (4LL * leaf >= mesh.count) return;
    float low[4][3], high[4][3];
#pragma unroll
    for (int child = 0; child < 4; ++child) {
        for (int axis = 0; axis < 3; ++axis) {
            low[child][axis] = infinity();
            high[child][axis] = -infinity();
        }
        const int j = 4 * leaf + child;
        if (j >= mesh.count) continue;
        const Triangle t = load_triangle(mesh, j, frame);
        low[child][0] = __double2float_rd(fmin(fmin(t.a.x, t.b.x), t.c.x));
        low[child][1] = __double2float_rd(fmin(fmin(t.a.y, t.b.y), t.c.y));
        low[child][2] = __double2float_rd(fmin(fmin(t.a.z, t.b.z), t.c.z));
        high[child][0] = __double2float_ru(fmax(fmax(t.a.x, t.b.x), t.c.x));
        high[child][1] = __double2float_ru(fmax(fmax(t.a.y, t.b.y), t.c.y));
        high[child][2] = __double2float_ru(fmax(fmax(t.a.z, t.b.z), t.c.z));
        const Point a = make_point(t.a), e1 = make_point(t.b - t.a), e2 = make_point(t.c - t.a);
        float4* row = rows + 3 * static_cast<long long>(j);
        row[0] = make_float4(a.high.x, a.high.y, a.high.z, a.low.x);
        row[1] = make_float4(a.low.y, a.low.z, e1.high.x, e1.high.y);
        row[2] = make_float4(e1.high.z, e2.high.x, e2.high.y, e2.high.z);
    }
    store_boxes(nodes, first_leaf + leaf, low, high);
}

// Node `first` + i of a level, from `children` nodes of the level below.
__device__ __forceinline__ void join(float4* nodes, int first, int i, int children) {
    float low[4][3], high[4][3];
#pragma unroll
    for (int child = 0; child < 4; ++child) {
        const bool exists = 4LL * i + child < children;
        const float4* n = nodes + NODE * (4LL * (first + i) + 1 + child);
        for (int axis = 0; axis < 3; ++axis) {
            low[child][axis] = exists ? smallest_of(n[axis]) : infinity();
            high[child][axis] = exists ? largest_of(n[3 + axis]) : -infinity();
        }
    }
    store_boxes(nodes, first + i, low, high);
}

// The nodes [first, first + count) of one level.
extern "C" __global__ void build_level(float4* nodes, int first, int count, int children) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) join(nodes, first, i, children);
}

// The same for that level and all above it, by one block.
extern "C" __global__ void __launch_bounds__(1024) build_top(float4* nodes, int first, int count, int children) {
    while (true) {
        for (int i = threadIdx.x; i < count; i += blockDim.x) join(nodes, first, i, children);
        if (count == 1) return;
        __syncthreads();
        first = (first - 1) / 4;
        children = count;
        count = (count + 3) / 4;
    }
}
