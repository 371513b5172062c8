// A tree without pointers over triangles sorted along a Hilbert curve (Kamel and Faloutsos, Hilbert R-tree, 1994), four
// children a node: node b has the children 4 b + 1 ... 4 b + 4. The children of node `first_leaf` + i are the triangles
// 4 i ... 4 i + 3. A node holds the boxes of its children, rounded outward to float: low x, y, z, then high x, y, z, each
// a float4 with one value a child. Children that do not exist have empty boxes.
#include "triangle.cuh"

constexpr int NODE = 6;    // float4s a node
constexpr int STACK = 48;  // three entries a level: 15 levels are 2^30 triangles

struct Target {
    Mesh mesh;
    Frame frame;
    const float4* nodes;
    const float4* rows;
    int first_leaf;
};

struct Boxes {
    float4 low[3], high[3];
};

__device__ __forceinline__ Boxes load_boxes(const Target& target, int node) {
    const float4* n = target.nodes + NODE * static_cast<long long>(node);
    return {{__ldg(n), __ldg(n + 1), __ldg(n + 2)}, {__ldg(n + 3), __ldg(n + 4), __ldg(n + 5)}};
}

// Squared distance from p to a box, rounded down: every operation is.
__device__ __forceinline__ float box_distance2(Vector<float> p, float lx, float ly, float lz, float hx, float hy,
                                               float hz) {
    const float x = fmaxf(fmaxf(__fsub_rd(lx, p.x), __fsub_rd(p.x, hx)), 0.0f);
    const float y = fmaxf(fmaxf(__fsub_rd(ly, p.y), __fsub_rd(p.y, hy)), 0.0f);
    const float z = fmaxf(fmaxf(__fsub_rd(lz, p.z), __fsub_rd(p.z, hz)), 0.0f);
    return __fmaf_rd(x, x, __fmaf_rd(y, y, __fmul_rd(z, z)));
}

// The squared distances of a node's children with the child's number in the two lowest bits: still rounded down, and
// they sort as integers.
struct Keys {
    unsigned key[4];
};

__device__ __forceinline__ unsigned make_key(float distance2, unsigned child) {
    return (__float_as_uint(distance2) & ~3u) | child;
}

__device__ __forceinline__ float key_distance2(unsigned key) { return __uint_as_float(key & ~3u); }

__device__ __forceinline__ Keys child_keys(const Boxes& b, Vector<float> p) {
    return {make_key(box_distance2(p, b.low[0].x, b.low[1].x, b.low[2].x, b.high[0].x, b.high[1].x, b.high[2].x), 0),
            make_key(box_distance2(p, b.low[0].y, b.low[1].y, b.low[2].y, b.high[0].y, b.high[1].y, b.high[2].y), 1),
            make_key(box_distance2(p, b.low[0].z, b.low[1].z, b.low[2].z, b.high[0].z, b.high[1].z, b.high[2].z), 2),
            make_key(box_distance2(p, b.low[0].w, b.low[1].w, b.low[2].w, b.high[0].w, b.high[1].w, b.high[2].w), 3)};
}

__device__ __forceinline__ void order(unsigned& a, unsigned& b) {
    const unsigned low = min(a, b);
    b = max(a, b);
    a = low;
}

__device__ __forceinline__ void sort(Keys& k) {
    order(k.key[0], k.key[1]);
    order(k.key[2], k.key[3]);
    order(k.key[0], k.key[2]);
    order(k.key[1], k.key[3]);
    order(k.key[1], k.key[2]);
}

// Visits the triangles in order of the distance of their boxes, nearest branches first. Query: keys(boxes) bounds the
// children from below; reach2() is the squared distance from which on nothing matters; visit(triangle) returns true to
// end the search. The loop down to a leaf is one of its own, so that the threads of a warp test triangles together.
template <typename Query>
__device__ __forceinline__ void traverse(const Target& target, Query& query) {
    constexpr int NONE = 0x7fffffff;  // beyond every leaf
    uint2 stack[STACK];               // key, node
    int top = 0, node = 0;
    const auto pop = [&] {
        while (top > 0) {
            const uint2 entry = stack[--top];
            if (key_distance2(entry.x) < query.reach2()) return static_cast<int>(entry.y);
        }
        return NONE;
    };
    while (true) {
        while (node < target.first_leaf) {
            Keys keys = query.keys(load_boxes(target, node));
            sort(keys);
            const float reach2 = query.reach2();
            const int child = 4 * node + 1;
#pragma unroll
            for (int i = 3; i > 0; --i)
                if (key_distance2(keys.key[i]) < reach2)
                    stack[top++] = make_uint2(keys.key[i], static_cast<unsigned>(child) + (keys.key[i] & 3u));
            node = key_distance2(keys.key[0]) < reach2 ? child + static_cast<int>(keys.key[0] & 3u) : pop();
        }
        if (node == NONE) return;
        Keys keys = query.keys(load_boxes(target, node));
        sort(keys);
        const int first = 4 * (node - target.first_leaf);
#pragma unroll 1
        for (int i = 0; i < 4; ++i) {
            const unsigned key = i == 0 ? keys.key[0] : i == 1 ? keys.key[1] : i == 2 ? keys.key[2] : keys.key[3];
            if (!(key_distance2(key) < query.reach2())) break;
            if (query.visit(first + static_cast<int>(key & 3u))) return;
        }
        node = pop();
    }
}

// What float can tell and how: error terms in the frame's unit.
struct Precision {
    float tiny;    // see distance_interval
    float blur;    // at least the distance from a point to its high part
    float ignore;  // a nearest distance may be too large by this
};

// The nearest triangle of a point. The traversal works in float and remembers the last triangles that might be nearest;
// double then decides among them. Only where an older one may be nearer too does a second traversal use double at once.
struct Nearest {
    static constexpr int RECENT = 4;
    const Target& target;
    const Precision& precision;
    const Point& p;
    float best, limit2;  // upper bound on the distance found; squared reach of the search
    float lower[RECENT], forgotten;  // lower bounds on the distance of the last candidates, and of all before
    int recent[RECENT], row;
    double distance;  // to `row`, in double
    bool exact;

    __device__ Nearest(const Target& target, const Precision& precision, const Point& p)
        : target(target), precision(precision), p(p), forgotten(infinity()), row(0), distance(infinity()), exact(false) {
        accept(infinity());
        for (int i = 0; i < RECENT; ++i) {
            lower[i] = infinity();
            recent[i] = -1;
        }
    }

    __device__ Keys keys(const Boxes& boxes) const { return child_keys(boxes, p.high); }
    __device__ float reach2() const { return limit2; }

    __device__ void accept(float distance) {
        best = distance;
        const float reach = __fadd_ru(__fsub_ru(best, precision.ignore), precision.blur);
        limit2 = best > precision.ignore ? __fmul_ru(reach, reach) : -1.0f;
    }

    // Whether a triangle with this lower bound is nearer than the best by more than can be ignored.
    __device__ bool matters(float bound) const { return __fadd_rd(bound, precision.ignore) < best; }

    __device__ void measure(int j) {
        const double d = exact_distance(target.mesh, target.frame, j, p.exact);
        if (d < distance) {
            distance = d;
            row = j;
        }
    }

    __device__ bool visit(int j) {
        for (int i = 0; i < RECENT; ++i)
            if (j == recent[i]) return false;
        const Interval d = distance_interval(load_row(target.rows, j), p, precision.tiny);
        if (!matters(d.lower)) return false;
        if (exact) {
            measure(j);
            accept(__double2float_ru(distance));
            return false;
        }
        if (d.upper < best) accept(d.upper);
        forgotten = fminf(forgotten, lower[RECENT - 1]);
#pragma unroll
        for (int i = RECENT - 1; i > 0; --i) {
            lower[i] = lower[i - 1];
            recent[i] = recent[i - 1];
        }
        lower[0] = d.lower;
        recent[0] = j;
        return false;
    }

    // The distance to triangle `row`, too large by no more than what is ignored.
    __device__ double search() {
        traverse(target, *this);
        accept(infinity());
        for (int i = 0; i < RECENT; ++i) {
            if (!matters(lower[i])) continue;
            measure(recent[i]);
            accept(__double2float_ru(distance));
        }
        if (matters(forgotten)) {
            exact = true;
            traverse(target, *this);
        }
        return distance;
    }
};

// The distance from p to triangle j, not too small but for rounding: good enough to tell whether it is above `limit`, and
// too large by no more than `blur`.
__device__ __noinline__ double distance_to(Mesh mesh, Frame frame, const float4* rows, float tiny, int j, Point p,
                                           double limit, float blur) {
    const Interval d = distance_interval(load_row(rows, j), p, tiny);
    const bool told = d.upper <= limit || d.lower > limit;
    return told && d.upper - d.lower <= blur ? d.upper : exact_distance(mesh, frame, j, p.exact);
}

__device__ __forceinline__ double distance_to(const Target& target, const Precision& precision, int j, const Point& p,
                                              double limit, float blur = infinity()) {
    return distance_to(target.mesh, target.frame, target.rows, precision.tiny, j, p, limit, blur);
}

// Whether triangle j is within `limit` of three points, and hence of the triangle between them: the distance to a convex
// set is convex. `worst` rises to a bound on it when it is.
__device__ __forceinline__ bool covers(const Target& target, const Precision& precision, int j, const Point (&p)[3],
                                       double limit, double& worst) {
    double largest = 0.0;
    for (int corner = 0; corner < 3; ++corner) {
        largest = fmax(largest, distance_to(target, precision, j, p[corner], limit));
        if (largest > limit) return false;
    }
    worst = fmax(worst, largest);
    return true;
}

// Any triangle of the target that is within `limit` of three points.
struct Cover {
    const Target& target;
    const Precision& precision;
    const Point (&p)[3];
    double limit, worst;
    float limit2;
    int row;

    __device__ Cover(const Target& target, const Precision& precision, const Point (&p)[3], double limit)
        : target(target), precision(precision), p(p), limit(limit), worst(0.0), row(-1) {
        const float reach = __fadd_ru(__double2float_ru(limit), precision.blur);
        limit2 = __fmul_ru(reach, reach);
    }

    __device__ Keys keys(const Boxes& boxes) const {
        Keys k = child_keys(boxes, p[0].high);
        const Keys k1 = child_keys(boxes, p[1].high), k2 = child_keys(boxes, p[2].high);
#pragma unroll
        for (int child = 0; child < 4; ++child) k.key[child] = max(max(k.key[child], k1.key[child]), k2.key[child]);
        return k;
    }
    __device__ float reach2() const { return limit2; }
    __device__ bool visit(int j) {
        if (covers(target, precision, j, p, limit, worst)) row = j;
        return row >= 0;
    }
};
