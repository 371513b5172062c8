// The two meshes of a search, in device memory.
#include "vector.cuh"

// Coordinates are computed with in the target's frame: its centre is the origin, and a power of two brings it to size 1,
// so that squares in float neither overflow nor underflow. The scaling is exact, the shift rounds once.
struct Frame {
    double origin[3];
    double scale;
};

// Faces are sorted along a Hilbert curve. The vertices stay in the mesh's own coordinates, and in their own order.
struct Mesh {
    const int* faces;        // (count, 3)
    const double* vertices;  // (V, 3)
    int count;
};

__device__ __forceinline__ Vector<double> vertex_position(const Mesh& mesh, int vertex, const Frame& frame) {
    const double* v = mesh.vertices + 3 * static_cast<long long>(vertex);
    return {(__ldg(v) - frame.origin[0]) * frame.scale, (__ldg(v + 1) - frame.origin[1]) * frame.scale,
            (__ldg(v + 2) - frame.origin[2]) * frame.scale};
}

__device__ __forceinline__ int face_vertex(const Mesh& mesh, int face, int corner) {
    return __ldg(mesh.faces + 3 * static_cast<long long>(face) + corner);
}

__device__ __forceinline__ Vector<double> face_corner(const Mesh& mesh, int face, int corner, const Frame& frame) {
    return vertex_position(mesh, face_vertex(mesh, face, corner), frame);
}

// A double as the sum of two floats, to 2^-48 of its magnitude: differences of near points lose nothing in float.
struct Point {
    Vector<double> exact;
    Vector<float> high, low;
};

__device__ __forceinline__ Point make_point(Vector<double> p) {
    const Vector<float> high = {static_cast<float>(p.x), static_cast<float>(p.y), static_cast<float>(p.z)};
    const Vector<float> low = {static_cast<float>(p.x - high.x), static_cast<float>(p.y - high.y),
                               static_cast<float>(p.z - high.z)};
    return {p, high, low};
}
