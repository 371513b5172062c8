// Upper bounds on the distance of a whole triangle of the source to the target, cheapest first. All hold for degenerate
// triangles.
#include "search.cuh"

// A triangle of the source: its corners, their distances to the target and the target's triangles that attain them.
struct Open {
    Point p[3];
    double distance[3];
    int row[3];
};

// From the corner distances alone: the distance to a set changes no faster than the point moves. The smaller of
// min_i (d_i + longest edge at i) and max_i d_i + r, where discs of radius r about the corners cover the triangle: its
// circumradius when it is acute, else half the longest edge (Sacht and Jacobson, 2024, u1 and u2).
__device__ __forceinline__ double covering_bound(const Open& o) {
    const Vector<double> ea = o.p[2].exact - o.p[1].exact, eb = o.p[0].exact - o.p[2].exact;
    const Vector<double> ec = o.p[1].exact - o.p[0].exact;
    const double a = dot(ea, ea), b = dot(eb, eb), c = dot(ec, ec);
    const double u1 = fmin(fmin(o.distance[0] + sqrt(fmax(b, c)), o.distance[1] + sqrt(fmax(a, c))),
                           o.distance[2] + sqrt(fmax(a, b)));
    // the angle opposite the longest edge has a cosine of at most 1/2, so that nothing cancels
    double longest = a, p = b, q = c, cosine = -dot(eb, ec);
    if (b > longest) {
        longest = b;
        p = a;
        q = c;
        cosine = -dot(ea, ec);
    }
    if (c > longest) {
        longest = c;
        p = a;
        q = b;
        cosine = -dot(ea, eb);
    }
    double radius2 = 0.25 * longest;
    if (cosine > 0.0) radius2 *= fmin(p * q / (p * q - cosine * cosine), 4.0 / 3.0);
    return fmin(u1, fmax(fmax(o.distance[0], o.distance[1]), o.distance[2]) + sqrt(radius2));
}

// f[a][b]: distance of corner b to the triangle nearest to corner a. `cover`: the bound by the best of the three alone.
struct Match {
    double f[3][3], cover;
};

__device__ __forceinline__ Match match(const Search& s, const Open& o, double limit) {
    Match m;
    m.cover = infinity();
#pragma unroll
    for (int a = 0; a < 3; ++a) {
        double worst = 0.0;
#pragma unroll
        for (int b = 0; b < 3; ++b) {
            m.f[a][b] = o.distance[b];
            if (o.row[a] != o.row[b])
                m.f[a][b] = distance_to(s.target, s.precision, o.row[a], o.p[b], limit, s.precision.ignore);
            worst = fmax(worst, m.f[a][b]);
        }
        m.cover = fmin(m.cover, worst);
    }
    return m;
}

// Cuts the triangle between its corners' nearest triangles and bounds each piece by its own. Cut points lie on the edges
// whose ends have different ones, where the two distances meet if they were linear, and in the middle when all three
// differ. Any cut is valid: a piece lies in the hull of its corners, on which the distance to one convex triangle is
// largest at a corner. But the bound is only as tight as the cut is well placed, however small the triangle. The cuts do
// what the bisector planes of Kang et al. (2018) do. Once above `limit`, the bound is of no use and not worked out.
__device__ __forceinline__ double split_bound(const Search& s, const Open& o, const Match& m, double limit) {
    const double (&f)[3][3] = m.f;
    double largest = fmax(fmax(o.distance[0], o.distance[1]), o.distance[2]);
    const auto reach = [&](int a, const Point& x) {
        if (largest <= limit) largest = fmax(largest, distance_to(s.target, s.precision, o.row[a], x, limit));
    };
    int different = 0;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
        const int b = a == 2 ? 0 : a + 1;
        if (o.row[a] == o.row[b]) continue;
        ++different;
        const double ga = f[b][a] - f[a][a], gb = f[a][b] - f[b][b];
        const double t = ga + gb > 0.0 ? clamp(ga / (ga + gb), 1.0) : 0.5;
        const Point x = make_point(along(o.p[a].exact, t, o.p[b].exact - o.p[a].exact));
        reach(a, x);
        reach(b, x);
    }
    if (different == 3) {
        // barycentric weights at which the three distances meet if they were linear
        const Vector<double> u = {f[0][0] - f[1][0], f[0][1] - f[1][1], f[0][2] - f[1][2]};
        const Vector<double> v = {f[0][0] - f[2][0], f[0][1] - f[2][1], f[0][2] - f[2][2]};
        const Vector<double> w = cross(u, v);
        const double total = w.x + w.y + w.z;
        double w0 = w.x / total, w1 = w.y / total;
        if (!(w0 >= 0.0 && w1 >= 0.0 && w0 + w1 <= 1.0)) w0 = w1 = 1.0 / 3.0;  // outside, or 0 / 0
        const Vector<double> c = o.p[2].exact;
        const Point x = make_point(along(along(c, w0, o.p[0].exact - c), w1, o.p[1].exact - c));
        for (int a = 0; a < 3; ++a) reach(a, x);
    }
    return largest;
}

// The first bound that is not above `limit`, else the best cheap one; `known` is the parent's. Whole warps call it. Between
// two bounds lanes wait for each other: left alone, the compiler may let them run all that follows in as many groups as
// there are ways through the first.
__device__ __forceinline__ double upper_bound(const Search& s, const Open& o, double known, double limit) {
    double bound = fmin(known, covering_bound(o));
    if (bound > limit) {
        const Match m = match(s, o, limit);
        const double best = m.cover <= limit ? m.cover : split_bound(s, o, m, limit);
        if (best <= limit) bound = best;
    }
    __syncwarp();
    if (bound > limit) {
        Cover cover(s.target, s.precision, o.p, limit);
        traverse(s.target, cover);
        if (cover.row >= 0) bound = cover.worst;
    }
    __syncwarp();
    return bound;
}
