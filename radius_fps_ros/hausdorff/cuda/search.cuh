// What the kernels of one search share, and what they report.
#include "worklist.cuh"

typedef unsigned long long Bits;  // of a double that is not negative: they compare as it does

// Negative values become zero; the sum turns a negative zero into a positive one.
__device__ __forceinline__ Bits to_bits(double value) {
    return static_cast<Bits>(__double_as_longlong(fmax(value, 0.0) + 0.0));
}
__device__ __forceinline__ double from_bits(Bits bits) { return __longlong_as_double(static_cast<long long>(bits)); }

// The point with the largest key, among equals the one with the smallest rank: the same in every run.
struct Champion {
    Bits key, rank;
    double point[3];
    int lock, unused;
};

// Read by the host between batches of rounds.
struct State {
    Champion farthest;  // of the source's points so far: the witness; the key is bits of the distance + 1, 0: none yet
    Champion nearest;   // point of the target to the witness; the key is the complement of the bits of the distance
    Bits closed;        // largest bound of a triangle that needs no further work
    Bits top;           // largest bound in the list that is being written
    Bits unseeded;      // bound on faces that were not yet looked at
    Bits certified;     // lower bound on the witness's distance
    Bits triangles;     // bounded so far
    int roots;          // faces that are not covered by one triangle of the target
    int vertices;       // their vertices
    int reading;        // triangles that this round splits
    int total;          // of so many in its list: when deferring, not all are split
    int written;        // triangles in the other list
    int list;           // which of the two lists is read
    int paused;         // the round did not run: no room, or the threshold is passed
    unsigned arrived;   // blocks that wait at the barrier
    unsigned passed;    // barriers so far
};

struct Search {
    Target target;
    Mesh source;
    Worklist lists[2];
    Precision precision;
    double cut;        // bounds up to this need no work, whatever the distance
    double slack;      // nor do those up to `farthest` plus this
    double threshold;  // once `farthest` is above this, the answer is known; infinite: none
    State* state;
    int* group_row;           // nearest row of each group's sample
    int* roots;               // (source.count)
    int* root_vertices;       // (V)
    double* vertex_distance;  // (V)
    int* vertex_row;          // (V) nearest row; -1: not wanted, -2 - row: wanted, start there
    double* new_distance;     // (3, capacity / 4) of the new points of the triangles that are split
    int* new_row;
    const int* order;  // which triangles of the list a round splits; null: all
};

constexpr int GROUP = 16;  // faces, neighbours on the curve, of which one vertex is sampled first

__device__ __forceinline__ int lane() { return threadIdx.x & 31; }
__device__ __forceinline__ int thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int thread_count() { return gridDim.x * blockDim.x; }

// Which of so many items a thread has: `base` + `here`, and every `step`-th from there. Where there are few, `each`
// neighbouring threads have one, up to `threads` in all, because different items in a warp wait for each other's ways
// through the tree. All blocks get about as many warps, at least two, with neighbouring items, which meet the same nodes.
struct Share {
    int each, here, base, step;

    __device__ Share(int items, int threads) : each(1) {
        while (each < 32 && 2LL * each * items <= threads) each *= 2;
        here = lane() / each;
        const int blocks = gridDim.x, block = blockIdx.x, warp = threadIdx.x / 32;
        const int needed = (items * static_cast<long long>(each) + 31) / 32;
        const int busy = min(max((needed + blocks - 1) / blocks, 2), static_cast<int>(blockDim.x) / 32);  // of a block
        base = warp < busy ? (block * busy + warp) * (32 / each) : items;
        step = blocks * busy * (32 / each);
    }

    __device__ bool leads() const { return lane() % each == 0; }
};

// Barrier of all blocks, which must run at once; what was written before it is visible behind it.
__device__ __forceinline__ void grid_barrier(State* state) {
    __syncthreads();
    if (threadIdx.x == 0) {
        volatile unsigned* passed = &state->passed;
        const unsigned before = *passed;
        __threadfence();
        if (atomicAdd(&state->arrived, 1u) == gridDim.x - 1) {
            state->arrived = 0;
            __threadfence();
            *passed = before + 1;
        } else {
            while (*passed == before) {}
        }
        __threadfence();
    }
    __syncthreads();
}

__device__ __forceinline__ double farthest(const State& state) {
    return state.farthest.key ? from_bits(state.farthest.key - 1) : 0.0;
}

// Computed bounds up to this close a triangle.
__device__ __forceinline__ double cut(const Search& s) { return fmax(s.cut, farthest(*s.state) + s.slack); }

// Plain reads first: atomics on one address by every thread would serialize the device.
__device__ __forceinline__ Bits peek(const Bits& value) { return *static_cast<const volatile Bits*>(&value); }

__device__ __forceinline__ void raise(Bits* target, double value) {
    const Bits bits = to_bits(value);
    if (bits > peek(*target)) atomicMax(target, bits);
}

__device__ __forceinline__ bool beats(const Champion& champion, Bits key, Bits rank) {
    const Bits best = peek(champion.key);
    if (key != best) return key > best;
    __threadfence();
    return rank < peek(champion.rank);
}

// Threads that wait for the lock look again each time: most give up after a few others had it.
__device__ __forceinline__ void propose(Champion* champion, Bits key, Bits rank, Vector<double> p) {
    while (beats(*champion, key, rank)) {
        if (atomicCAS(&champion->lock, 0, 1) != 0) continue;
        if (beats(*champion, key, rank)) {
            volatile Champion* c = champion;
            c->rank = ~0ull;  // beats nobody until it belongs to the new key
            __threadfence();
            c->key = key;
            c->point[0] = p.x;
            c->point[1] = p.y;
            c->point[2] = p.z;
            __threadfence();
            c->rank = rank;
        }
        __threadfence();
        atomicExch(&champion->lock, 0);
        return;
    }
}

// A point of the source and its distance. The rank need only be the same in every run.
__device__ __forceinline__ void propose_witness(State* state, double distance, Vector<double> p) {
    const Bits x = __double_as_longlong(p.x), y = __double_as_longlong(p.y), z = __double_as_longlong(p.z);
    const Bits rank = ((x * 0x9e3779b97f4a7c15ull ^ y) * 0x9e3779b97f4a7c15ull ^ z) * 0x9e3779b97f4a7c15ull;
    propose(&state->farthest, to_bits(distance) + 1, rank, p);
}
