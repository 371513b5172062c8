// Vectors of three floats or doubles.

template <typename Real>
struct Vector {
    Real x, y, z;
};

template <typename Real>
__device__ __forceinline__ Vector<Real> operator+(Vector<Real> a, Vector<Real> b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z};
}

template <typename Real>
__device__ __forceinline__ Vector<Real> operator-(Vector<Real> a, Vector<Real> b) {
    return {a.x - b.x, a.y - b.y, a.z - b.z};
}

template <typename Real>
__device__ __forceinline__ Real dot(Vector<Real> a, Vector<Real> b) {
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

template <typename Real>
__device__ __forceinline__ Vector<Real> cross(Vector<Real> a, Vector<Real> b) {
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

// a + t * b
template <typename Real>
__device__ __forceinline__ Vector<Real> along(Vector<Real> a, Real t, Vector<Real> b) {
    return {a.x + t * b.x, a.y + t * b.y, a.z + t * b.z};
}

// Largest magnitude of a coordinate.
__device__ __forceinline__ float magnitude(Vector<float> a) { return fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fabsf(a.z)); }

// NaN, from 0 / 0 on an edge without length, becomes 0.
__device__ __forceinline__ float clamp(float value, float high) { return fminf(fmaxf(value, 0.0f), high); }
__device__ __forceinline__ double clamp(double value, double high) { return fmin(fmax(value, 0.0), high); }

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
