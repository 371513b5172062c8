// The search for the directed Hausdorff distance from the source to the target: branch and bound over the source's
// triangles, all open ones a round (Fan et al., "GPU-accelerated Certified Hausdorff Distance Between Triangle Meshes",
// 2026). The kernels pass each other everything in device memory; the host launches many rounds before it looks.
#include "bounds.cuh"

// One vertex of each group: a first lower bound on the distance, and with the group's extent an upper bound for it.
extern "C" __global__ void sample(const Search s) {
    const int groups = (s.source.count + GROUP - 1) / GROUP;
    const Share share(groups, thread_count() / 2);
    if (!share.leads()) return;
    for (int g = share.base + share.here; g < groups; g += share.step) {
        const int first = g * GROUP, last = min(first + GROUP, s.source.count);
        const Vector<double> centre = face_corner(s.source, (first + last) / 2, 0, s.target.frame);
        const Point p = make_point(centre);
        Nearest nearest(s.target, s.precision, p);
        const double distance = nearest.search();
        s.group_row[g] = nearest.row;
        propose_witness(s.state, distance, p.exact);
        double extent2 = 0.0;
        for (int face = first; face < last; ++face)
            for (int corner = 0; corner < 3; ++corner) {
                const Vector<double> offset = face_corner(s.source, face, corner, s.target.frame) - centre;
                extent2 = fmax(extent2, dot(offset, offset));
            }
        raise(&s.state->unseeded, distance + sqrt(extent2));
    }
}

// Lists the faces [first, last) that no one triangle of the target covers, and their vertices.
extern "C" __global__ void screen(const Search s, int first, int last) {
    const double limit = cut(s);
    const Share share(last - first, 0);
    if (!share.leads()) return;
    for (int face = first + share.base + share.here; face < last; face += share.step) {
        const Triangle t = load_triangle(s.source, face, s.target.frame);
        const Point p[3] = {make_point(t.a), make_point(t.b), make_point(t.c)};
        Cover cover(s.target, s.precision, p, limit);
        const int hint = s.group_row[face / GROUP];
        if (!cover.visit(hint)) traverse(s.target, cover);
        if (cover.row >= 0) {
            raise(&s.state->closed, cover.worst);
            continue;
        }
        s.roots[atomicAdd(&s.state->roots, 1)] = face;
        for (int corner = 0; corner < 3; ++corner) {
            const int v = face_vertex(s.source, face, corner);
            // whichever face comes first, the smallest hint stays: every run searches alike
            if (s.vertex_row[v] < 0 && atomicMin(&s.vertex_row[v], -2 - hint) == -1)
                s.root_vertices[atomicAdd(&s.state->vertices, 1)] = v;
        }
    }
}

// Distances of the vertices from the list's position `first` on.
extern "C" __global__ void measure_vertices(const Search s, int first) {
    const Share share(s.state->vertices - first, thread_count() / 2);
    if (!share.leads()) return;
    for (int i = first + share.base + share.here; i < s.state->vertices; i += share.step) {
        const int v = s.root_vertices[i];
        const Point p = make_point(vertex_position(s.source, v, s.target.frame));
        Nearest nearest(s.target, s.precision, p);
        nearest.visit(-2 - s.vertex_row[v]);
        s.vertex_distance[v] = nearest.search();
        s.vertex_row[v] = nearest.row;
        propose_witness(s.state, s.vertex_distance[v], p.exact);
    }
}

// Closes a triangle whose bound is not above the limit or that cannot be halved any more, else stores it.
__device__ __forceinline__ void finish(const Search& s, const Worklist& out, const Open& o, int face,
                                       const Barycentric (&b)[3], double bound, double limit) {
    State* state = s.state;
    if (bound <= limit || !divisible(b[0]) || !divisible(b[1]) || !divisible(b[2])) {
        raise(&state->closed, bound);
        return;
    }
    raise(&state->top, bound);
    const int i = atomicAdd(&state->written, 1);
    out.face(i) = face;
    out.bound(i) = bound;
    out.mode(i) = static_cast<unsigned char>(choose_mode(o.p[0].exact, o.p[1].exact, o.p[2].exact));
    for (int corner = 0; corner < 3; ++corner) {
        out.coordinate(i, corner, 0) = b[corner].s;
        out.coordinate(i, corner, 1) = b[corner].t;
        out.distance(i, corner) = o.distance[corner];
        out.row(i, corner) = o.row[corner];
    }
}

// Bounds the listed faces at positions [first, last) of the list; open ones start the wavefront.
extern "C" __global__ void seed(const Search s, int first, int last) {
    const double limit = cut(s);
    const Worklist out = s.lists[s.state->list ^ 1];
    const Barycentric whole[3] = {{0.0, 0.0}, {1.0, 0.0}, {0.0, 1.0}};
    last = min(last, s.state->roots);
    const Share share(max(last - first, 0), thread_count() / 2);
    for (int base = first + share.base; base < last; base += share.step) {
        const int i = base + share.here, face = s.roots[min(i, last - 1)];  // idle lanes repeat one: whole warps go on
        Open o;
        for (int corner = 0; corner < 3; ++corner) {
            const int v = face_vertex(s.source, face, corner);
            o.p[corner] = make_point(vertex_position(s.source, v, s.target.frame));
            o.distance[corner] = s.vertex_distance[v];
            o.row[corner] = s.vertex_row[v];
        }
        const double bound = upper_bound(s, o, infinity(), limit);
        if (i < last && share.leads()) finish(s, out, o, face, whole, bound, limit);
    }
}

// Turns the list that was written into the one to read, where there is room for all children. With `order`, only its
// first `count` triangles are split.
__device__ __forceinline__ void begin_round(const Search& s, int count) {
    State* state = s.state;
    state->reading = 0;
    state->total = state->written;
    if (!s.order) {
        count = state->written;
        state->paused = 4LL * count > s.lists[0].capacity || farthest(*state) > s.threshold;
        if (state->paused) return;
    }
    state->reading = count;
    state->triangles += 4 * static_cast<Bits>(count);
    state->list ^= 1;
    state->written = 0;
    state->top = 0;
}

__device__ __forceinline__ int read_index(const Search& s, int i) { return s.order ? s.order[i] : i; }

// Distances of the three new points of each triangle, starting from what is nearest to the ends of their edges.
__device__ __forceinline__ void measure_points(const Search& s) {
    const Worklist list = s.lists[s.state->list];
    const int count = 3 * s.state->reading;
    const Share share(count, thread_count());
    if (!share.leads()) return;
    for (int k = share.base + share.here; k < count; k += share.step) {
        const int i = read_index(s, k / 3), point = 3 + k % 3, mode = list.mode(i);
        const Triangle face = load_triangle(s.source, list.face(i), s.target.frame);
        const Point p = make_point(position(face, split_point(list, i, mode, point)));
        Nearest nearest(s.target, s.precision, p);
        int a, b;
        parents(mode, point, a, b);
        for (int end = 0; end < 2; ++end) {
            const int parent = end == 0 ? a : b;
            if (parent < 3) nearest.visit(list.row(i, parent));
        }
        s.new_distance[k] = nearest.search();
        s.new_row[k] = nearest.row;
        propose_witness(s.state, s.new_distance[k], p.exact);
    }
}

// Bounds the four children of each triangle.
__device__ __forceinline__ void bound_children(const Search& s) {
    const double limit = cut(s);
    const Worklist list = s.lists[s.state->list], out = s.lists[s.state->list ^ 1];
    const int count = 4 * s.state->reading;
    const Share share(count, thread_count());
    for (int base = share.base; base < count; base += share.step) {
        const int k = min(base + share.here, count - 1);  // idle lanes repeat one: whole warps go on
        const int i = read_index(s, k >> 2), mode = list.mode(i), face_index = list.face(i);
        const Corners child = child_corners(mode, k & 3);
        const Triangle face = load_triangle(s.source, face_index, s.target.frame);
        Open o;
        Barycentric b[3];
#pragma unroll
        for (int c = 0; c < 3; ++c) {
            const int point = corner(child, c);
            b[c] = split_point(list, i, mode, point);
            o.p[c] = make_point(position(face, b[c]));
            const int added = 3 * (k >> 2) + point - 3;
            o.distance[c] = point < 3 ? list.distance(i, point) : s.new_distance[added];
            o.row[c] = point < 3 ? list.row(i, point) : s.new_row[added];
        }
        const double bound = upper_bound(s, o, list.bound(i), limit);
        if (base + share.here < count && share.leads()) finish(s, out, o, face_index, b, bound, limit);
    }
}

// Copies the triangles of `order` that a deferring round leaves for later.
__device__ __forceinline__ void defer(const Search& s) {
    const double limit = cut(s);
    const Worklist list = s.lists[s.state->list], out = s.lists[s.state->list ^ 1];
    for (int k = s.state->reading + thread_index(); k < s.state->total; k += thread_count()) {
        const int i = s.order[k];
        const double bound = list.bound(i);
        if (bound <= limit) {
            raise(&s.state->closed, bound);
            continue;
        }
        raise(&s.state->top, bound);
        const int j = atomicAdd(&s.state->written, 1);
        out.face(j) = list.face(i);
        out.bound(j) = bound;
        out.mode(j) = list.mode(i);
        for (int corner = 0; corner < 3; ++corner) {
            out.coordinate(j, corner, 0) = list.coordinate(i, corner, 0);
            out.coordinate(j, corner, 1) = list.coordinate(i, corner, 1);
            out.distance(j, corner) = list.distance(i, corner);
            out.row(j, corner) = list.row(i, corner);
        }
    }
}

// Rounds until nothing is open, at most `most`; with `order`, one round that splits the first `count` of it. All in one
// launch: a barrier takes less than the next launches of a round, of which there may be none.
extern "C" __global__ void __launch_bounds__(384, 1) rounds(const Search s, int most, int count) {
    for (int round = 0; round < most; ++round) {
        if (thread_index() == 0) begin_round(s, count);
        grid_barrier(s.state);
        if (s.state->reading == 0) return;
        measure_points(s);
        grid_barrier(s.state);
        bound_children(s);
        if (s.order) defer(s);
        grid_barrier(s.state);
    }
}

extern "C" __global__ void begin_report(const Search s) {
    if (thread_index() > 0) return;
    s.state->certified = to_bits(infinity());
    s.state->nearest.key = 0;
}

// Lower bound on the witness's distance and the point nearest to it, from all triangles of the target: float rules most
// of them out.
extern "C" __global__ void certify_witness(const Search s) {
    State* state = s.state;
    const double known = farthest(*state);
    const double* w = state->farthest.point;
    const Point p = make_point({w[0], w[1], w[2]});
    for (int j = thread_index(); j < s.target.mesh.count; j += thread_count()) {
        if (distance_interval(load_row(s.target.rows, j), p, s.precision.tiny).lower > known) continue;
        const Triangle t = load_triangle(s.target.mesh, j, s.target.frame);
        const Bits below = to_bits(distance_below(t, p.exact));
        if (below < peek(state->certified)) atomicMin(&state->certified, below);
        const Vector<double> r = exact_residual(t, p.exact);
        propose(&state->nearest, ~to_bits(sqrt(dot(r, r))), j, p.exact - r);
    }
}
