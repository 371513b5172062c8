// Distance from a point to a triangle: an interval in float, the distance itself in double, a lower bound in double.
#include "mesh.cuh"

// From the nearest point of the triangle with edges e1, e2 at corner 0 to the point at `w` from corner 0: the best of the
// three edges and, where the foot on the plane lies inside, the foot. It is found through the height f of the triangle
// over e1: with the normal equations instead, a sliver would lose twice the digits. More than one pass makes f as
// orthogonal to e1 as it can be. The point found is one of the triangle, whatever its shape.
template <int PASSES, typename Real>
__device__ __forceinline__ Vector<Real> residual(Vector<Real> w, Vector<Real> e1, Vector<Real> e2) {
    const Real one = 1, a11 = dot(e1, e1), per_e1 = one / a11, d1 = dot(e1, w);
    Vector<Real> best = along(w, -clamp(d1 * per_e1, one), e1);
    Real best2 = dot(best, best);
    const auto take = [&](Vector<Real> r) {
        const Real r2 = dot(r, r);
        if (r2 < best2) {
            best = r;
            best2 = r2;
        }
    };
    take(along(w, -clamp(dot(e2, w) / dot(e2, e2), one), e2));
    const Vector<Real> e3 = e2 - e1, w3 = w - e1;
    take(along(w3, -clamp(dot(e3, w3) / dot(e3, e3), one), e3));
    Vector<Real> f = e2;
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) f = along(f, -dot(e1, f) * per_e1, e1);
    const Real t = dot(f, w) / dot(f, f);
    const Vector<Real> r = along(w, -t, e2);
    const Real s = dot(e1, r) * per_e1;
    if (s >= 0 && t >= 0 && s + t <= one) take(along(r, -s, e1));
    return best;
}

// Corner 0 as two floats, edges 1 - 0 and 2 - 0 as floats: three loads of 16 bytes.
struct Row {
    Vector<float> high, low, e1, e2;
};

__device__ __forceinline__ Row load_row(const float4* rows, int j) {
    const float4* row = rows + 3 * static_cast<long long>(j);
    const float4 a = __ldg(row), b = __ldg(row + 1), c = __ldg(row + 2);
    return {{a.x, a.y, a.z}, {a.w, b.x, b.y}, {b.z, b.w, c.x}, {c.y, c.z, c.w}};
}

struct Interval {
    float lower, upper;
};

// Encloses the distance from p to a triangle, in float and up to what the double coordinates themselves are off.
//
// Let u = 2^-24, w_i the vectors from the triangle's corners to p, R their largest coordinate, m the largest coordinate
// of p and the triangle. w_0 is off by 2 u R and by less than 2^-45 m from the halves beyond float; w_1, w_2 by 5 u R,
// edges (at most 2 R) rounded once.
// upper: the length of the residual r of a point of the triangle: off by 14 u R a coordinate (on the third edge: w_1 by
//   5, that edge by 6, product and difference by 3), and 2.5 u relative to at most sqrt(3) R: 29 u R in all.
// lower: every corner is at least min_i (w_i . r) / |r| from p along r, hence so is the triangle, whatever r is: off by
//   the w_i, three roundings in the product and four in norm and quotient: 22 u R in all. Where the square of |r| has
//   underflowed, min_i (w_i . r) <= r . r leaves nothing above the error either.
// The error taken is 32 u R + `tiny`, at least 2^-43 m and 2^-70 (squares that underflowed).
__device__ __forceinline__ Interval distance_interval(const Row& row, const Point& p, float tiny) {
    const Vector<float> w = (p.high - row.high) + (p.low - row.low);
    const Vector<float> w1 = w - row.e1, w2 = w - row.e2;
    const Vector<float> r = residual<1>(w, row.e1, row.e2);
    const float length = sqrtf(dot(r, r));
    const float error = 0x1p-19f * fmaxf(fmaxf(magnitude(w), magnitude(w1)), magnitude(w2)) + tiny;
    const float support = length > 0.0f ? fminf(fminf(dot(r, w), dot(r, w1)), dot(r, w2)) / length : 0.0f;
    return {fmaxf(support - error, 0.0f), length + error};
}

struct Triangle {
    Vector<double> a, b, c;
};

__device__ __forceinline__ Triangle load_triangle(const Mesh& mesh, int face, const Frame& frame) {
    return {face_corner(mesh, face, 0, frame), face_corner(mesh, face, 1, frame), face_corner(mesh, face, 2, frame)};
}

// From the triangle's nearest point to p, in double: never shorter than the distance but for rounding.
__device__ __forceinline__ Vector<double> exact_residual(const Triangle& t, Vector<double> p) {
    return residual<2>(p - t.a, t.b - t.a, t.c - t.a);
}

// Its length. A function of its own: inlined at every use, the code would not fit the instruction cache.
__device__ __noinline__ double exact_distance(Mesh mesh, Frame frame, int face, Vector<double> p) {
    const Vector<double> r = exact_residual(load_triangle(mesh, face, frame), p);
    return sqrt(dot(r, r));
}

// Distance from the origin to the plane with normal n behind which all corners lie. A direction whose square might have
// lost digits to underflow says nothing.
__device__ __forceinline__ double support(const Triangle& t, Vector<double> n) {
    const double square = dot(n, n);
    if (square < 1e-200) return 0.0;
    const double a = dot(t.a, n), b = dot(t.b, n), c = dot(t.c, n);
    return fmax(fmin(fmin(a, b), c), -fmax(fmax(a, b), c)) / sqrt(square);
}

// Lower bound on the distance from p to the triangle, tight for any shape: the best of the planes normal to the face, to
// the line from p to a corner, and to the one from p to its foot on an edge. One of them touches the nearest point.
__device__ __forceinline__ double distance_below(const Triangle& triangle, Vector<double> p) {
    const Triangle t = {triangle.a - p, triangle.b - p, triangle.c - p};
    const Vector<double> e1 = t.b - t.a;
    Vector<double> height = t.c - t.a;  // over e1: with it the normal of a sliver is as good as that of other triangles
    const double square1 = dot(e1, e1);
    for (int pass = 0; pass < 2 && square1 > 1e-200; ++pass) height = along(height, -dot(height, e1) / square1, e1);
    double best = support(t, cross(e1, height));
    Vector<double> from = t.a, to = t.b, next = t.c;
#pragma unroll
    for (int corner = 0; corner < 3; ++corner) {
        best = fmax(best, support(t, from));
        const Vector<double> edge = to - from;
        const double square = dot(edge, edge);
        Vector<double> foot = from;
        // the second pass removes what rounding left of the edge's direction
        for (int pass = 0; pass < 2 && square > 1e-200; ++pass) foot = along(foot, -dot(foot, edge) / square, edge);
        best = fmax(best, support(t, foot));
        const Vector<double> first = from;
        from = to;
        to = next;
        next = first;
    }
    return best;
}
