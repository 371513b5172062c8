// Open triangles of the source, and how one is split into exactly four.
#include "tree.cuh"

// A triangle is the face it lies in and its corners' barycentric coordinates there, which halving keeps exact: positions
// round the same at any depth. With each corner goes its distance to the target and the triangle that attains it.
struct Worklist {
    char* memory;
    int capacity;

    __device__ double* doubles(int k) const { return reinterpret_cast<double*>(memory) + static_cast<long long>(k) * capacity; }
    __device__ int* integers(int k) const { return reinterpret_cast<int*>(doubles(10)) + static_cast<long long>(k) * capacity; }

    __device__ double& coordinate(int i, int corner, int axis) const { return doubles(2 * corner + axis)[i]; }
    __device__ double& distance(int i, int corner) const { return doubles(6 + corner)[i]; }
    __device__ double& bound(int i) const { return doubles(9)[i]; }
    __device__ int& row(int i, int corner) const { return integers(corner)[i]; }
    __device__ int& face(int i) const { return integers(3)[i]; }
    __device__ unsigned char& mode(int i) const { return reinterpret_cast<unsigned char*>(integers(4))[i]; }
};
constexpr int TRIANGLE_BYTES = 97;

struct Barycentric {
    double s, t;
};

__device__ __forceinline__ Barycentric middle(Barycentric a, Barycentric b) {
    return {0.5 * (a.s + b.s), 0.5 * (a.t + b.t)};
}

// Coordinates are multiples of 2^-52, so that their middle is exact.
__device__ __forceinline__ bool divisible(Barycentric a) {
    const double s = a.s * 0x1p52, t = a.t * 0x1p52;
    return floor(s) == s && floor(t) == t;
}

__device__ __forceinline__ Vector<double> position(const Triangle& face, Barycentric b) {
    const double r = 1.0 - b.s - b.t;
    return {fma(r, face.a.x, fma(b.s, face.b.x, b.t * face.c.x)), fma(r, face.a.y, fma(b.s, face.b.y, b.t * face.c.y)),
            fma(r, face.a.z, fma(b.s, face.b.z, b.t * face.c.z))};
}

// Splitting. Points 0, 1, 2 are the corners, 3, 4, 5 the new ones. Mode 0 joins the middles of the edges; other modes
// bisect an edge, then an edge of either half (Fan et al., 2026), for triangles so long that quarters would stay long.
// The mode is chosen once, when the triangle is stored: two kernels must agree on it to the last bit.

// Three point numbers, four bits each.
typedef unsigned Corners;

__device__ __forceinline__ Corners corners(int a, int b, int c) { return a | b << 4 | c << 8; }
__device__ __forceinline__ int corner(Corners t, int i) { return t >> 4 * i & 15; }
// The same triangle, edge `first` leading from its first corner to its second.
__device__ __forceinline__ Corners rotated(Corners t, int first) { return (t >> 4 * first | t << (12 - 4 * first)) & 0xfff; }

struct Bisection {
    Corners whole, half[2];  // each rotated so that the edge to bisect comes first; half[i] gets the new point 4 + i
};

__device__ __forceinline__ Bisection bisection(int mode) {
    const Corners whole = rotated(corners(0, 1, 2), (mode - 1) / 9);
    const int a = corner(whole, 0), b = corner(whole, 1), c = corner(whole, 2);
    return {whole, {rotated(corners(a, 3, c), (mode - 1) / 3 % 3), rotated(corners(3, b, c), (mode - 1) % 3)}};
}

// The ends of the edge on whose middle new point 3, 4 or 5 lies.
__device__ __forceinline__ void parents(int mode, int point, int& a, int& b) {
    a = point - 3;
    b = point == 5 ? 0 : point - 2;
    if (mode == 0) return;
    const Bisection split = bisection(mode);
    const Corners edge = point == 3 ? split.whole : split.half[point - 4];
    a = corner(edge, 0);
    b = corner(edge, 1);
}

__device__ __forceinline__ Corners child_corners(int mode, int child) {
    if (mode == 0)
        return child == 0   ? corners(0, 3, 5)
               : child == 1 ? corners(3, 1, 4)
               : child == 2 ? corners(5, 4, 2)
                            : corners(3, 4, 5);
    const Corners half = bisection(mode).half[child >> 1];
    const int a = corner(half, 0), b = corner(half, 1), c = corner(half, 2), added = 4 + (child >> 1);
    return child & 1 ? corners(added, b, c) : corners(a, added, c);
}

__device__ __forceinline__ Barycentric stored_corner(const Worklist& list, int i, int corner) {
    return {list.coordinate(i, corner, 0), list.coordinate(i, corner, 1)};
}

// Barycentric coordinates of one of the six points of triangle i.
__device__ __forceinline__ Barycentric split_point(const Worklist& list, int i, int mode, int point) {
    if (point < 3) return stored_corner(list, i, point);
    int a, b, p, q;
    parents(mode, point, a, b);
    parents(mode, 3, p, q);  // the only new point that can be a parent
    const Barycentric third = middle(stored_corner(list, i, p), stored_corner(list, i, q));
    return middle(a == 3 ? third : stored_corner(list, i, a), b == 3 ? third : stored_corner(list, i, b));
}

constexpr double ELONGATED = 0.06;  // 2 area / longest edge^2 below which edges are bisected (equilateral: 0.87)

__device__ __forceinline__ int longest_edge(Vector<double> a, Vector<double> b, Vector<double> c) {
    const double ab = dot(b - a, b - a), bc = dot(c - b, c - b), ca = dot(a - c, a - c);
    return ab >= bc && ab >= ca ? 0 : bc >= ca ? 1 : 2;
}

__device__ __forceinline__ int choose_mode(Vector<double> a, Vector<double> b, Vector<double> c) {
    const Vector<double> normal = cross(b - a, c - a);
    const double longest2 = fmax(fmax(dot(b - a, b - a), dot(c - b, c - b)), dot(a - c, a - c));
    if (sqrt(dot(normal, normal)) >= ELONGATED * longest2) return 0;
    const int first = longest_edge(a, b, c);
    const Vector<double> p = first == 0 ? a : first == 1 ? b : c, q = first == 0 ? b : first == 1 ? c : a;
    const Vector<double> r = first == 0 ? c : first == 1 ? a : b;
    const Vector<double> m = {0.5 * (p.x + q.x), 0.5 * (p.y + q.y), 0.5 * (p.z + q.z)};
    return 1 + 9 * first + 3 * longest_edge(p, m, r) + longest_edge(m, q, r);
}
