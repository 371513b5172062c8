// What surrounds the algorithms on the device: a message's bytes to points and features, and the samples' bytes back.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int MOST_COLUMNS = 32;

// Where a value lies in a point, and its type: sensor_msgs/PointField's number, 1 (int8) to 8 (float64).
struct Value {
    u32 offset, type;
};

// A message's layout, and which points are used.
struct Frame {
    u64 row_step;
    u32 points, width, point_step, swapped;  // swapped: the bytes of a value are in the other order
    Value xyz[3];
    u32 columns;
    Value column[MOST_COLUMNS];
    float box_low[3], box_high[3];
    double range_low, range_high;  // squared
};

__device__ __forceinline__ const u8* record(const u8* data, const Frame& frame, u32 point) {
    return data + point / frame.width * frame.row_step + (u64)(point % frame.width) * frame.point_step;
}

// The value's bits, the first byte in memory lowest.
__device__ __forceinline__ u64 read_bits(const u8* at, int size, bool swapped) {
    if (size == 4 && !swapped && ((u64)at & 1) == 0) {  // most fields of most sensors
        if (((u64)at & 3) == 0) return *reinterpret_cast<const u32*>(at);
        const unsigned short* const halves = reinterpret_cast<const unsigned short*>(at);
        return halves[0] | (u32)halves[1] << 16;
    }
    u64 bits = 0;
    for (int k = 0; k < size; ++k) bits |= (u64)at[swapped ? size - 1 - k : k] << 8 * k;
    return bits;
}

// To float as NumPy rounds it: to nearest, what is too large becomes infinite, and subnormal numbers stay (in C they
// would not: CuPy compiles with -ftz=true).
__device__ __forceinline__ float read_value(const u8* at, Value value, bool swapped) {
    at += value.offset;
    switch (value.type) {
        case 1: return (float)(signed char)*at;
        case 2: return (float)*at;
        case 3: return (float)(short)read_bits(at, 2, swapped);
        case 4: return (float)(unsigned short)read_bits(at, 2, swapped);
        case 5: return __int2float_rn((int)read_bits(at, 4, swapped));
        case 6: return __uint2float_rn((u32)read_bits(at, 4, swapped));
        case 7: return __uint_as_float((u32)read_bits(at, 4, swapped));
        default: {
            float rounded;
            asm("cvt.rn.f32.f64 %0, %1;" : "=f"(rounded) : "d"(__longlong_as_double(read_bits(at, 8, swapped))));
            return rounded;
        }
    }
}

__device__ __forceinline__ double widen(float value) {
    double wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(value));
    return wide;
}

__device__ __forceinline__ bool is_finite(float value) {
    return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

// The device's clock [ns].
__device__ __forceinline__ u64 now() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

// points: (capacity, 3), NaN where a point is not used or the frame has ended; columns: (capacity, frame.columns).
// counts: finite points, used points; start: the first used point. They are 0, 0 and all ones before.
// begin_and_end: when this began, and when it was done. Earlier times may stand there.
extern "C" __global__ void decode(const u8* __restrict__ data, Frame frame, u32 capacity, float* __restrict__ points,
                                  float* __restrict__ columns, u32* counts, u32* start, u64* begin_and_end) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0 && begin_and_end) begin_and_end[0] = now();
    const bool present = i < frame.points;
    float xyz[3];
    bool finite = present, used = false;
    if (present) {
        const u8* const at = record(data, frame, i);
        const bool swapped = frame.swapped;
        double squared = 0.0;
        for (int axis = 0; axis < 3; ++axis) {
            xyz[axis] = read_value(at, frame.xyz[axis], swapped);
            finite &= is_finite(xyz[axis]);
            const double wide = widen(xyz[axis]);
            squared = __dadd_rn(squared, __dmul_rn(wide, wide));
        }
        used = finite && squared >= frame.range_low && squared <= frame.range_high;
        for (int axis = 0; axis < 3; ++axis) {
            const double wide = widen(xyz[axis]);
            used &= wide >= widen(frame.box_low[axis]) && wide <= widen(frame.box_high[axis]);
        }
        for (int c = 0; c < frame.columns; ++c)
            columns[(u64)i * frame.columns + c] = used ? read_value(at, frame.column[c], swapped) : 0.0f;
    }
    if (i < capacity)
        for (int axis = 0; axis < 3; ++axis)
            points[3ull * i + axis] = used ? xyz[axis] : __uint_as_float(0x7fffffffu);
    const u32 finite_here = __syncthreads_count(finite), used_here = __syncthreads_count(used);
    if (threadIdx.x == 0 && finite_here) atomicAdd(&counts[0], finite_here);
    if (threadIdx.x == 0 && used_here) atomicAdd(&counts[1], used_here);
    const u32 warp_used = __ballot_sync(0xffffffffu, used);
    if (warp_used && threadIdx.x % 32 == 0) atomicMin(start, i + __ffs(warp_used) - 1);
    if (threadIdx.x == 0 && begin_and_end) atomicMax(&begin_and_end[1], now());
}

// One block: what the sampler and the network report goes to the outbox; end: when it was done.
extern "C" __global__ void report(const u32* __restrict__ summary, u32 summary_words, u32* __restrict__ summary_out,
                                  const u32* __restrict__ status, u32 status_words, u32* __restrict__ status_out,
                                  u64* end) {
    for (u32 k = threadIdx.x; k < summary_words; k += blockDim.x) summary_out[k] = summary[k];
    for (u32 k = threadIdx.x; k < status_words; k += blockDim.x) status_out[k] = status[k];
    if (threadIdx.x == 0 && end) *end = now();
}

// A warp a sample: its row and its record go to the outbox. summary[0] is the number of samples; begin: when this began.
extern "C" __global__ void pack(const u8* __restrict__ data, Frame frame, const long long* __restrict__ samples,
                                const u32* __restrict__ summary, long long* __restrict__ rows, u8* __restrict__ records,
                                u64* begin) {
    const u32 sample = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (blockIdx.x == 0 && threadIdx.x == 0 && begin) *begin = now();
    if (sample >= summary[0]) return;
    const long long row = samples[sample];
    const u8* const from = record(data, frame, (u32)row);
    u8* const to = records + (u64)sample * frame.point_step;
    if (lane == 0) rows[sample] = row;
    if (((u64)from & 3) == 0 && ((u64)to & 3) == 0 && frame.point_step % 4 == 0)
        for (u32 k = lane; k < frame.point_step / 4; k += 32)
            reinterpret_cast<u32*>(to)[k] = reinterpret_cast<const u32*>(from)[k];
    else
        for (u32 k = lane; k < frame.point_step; k += 32) to[k] = from[k];
}

// When all before it on the stream was done.
extern "C" __global__ void stamp(u64* __restrict__ at) { *at = now(); }
