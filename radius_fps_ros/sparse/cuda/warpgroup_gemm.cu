// The implicit GEMM of implicit_gemm.cu for float32, with products of warp groups (compute capability 9.0). See there
// for the long inner dimension, its pieces and chunks, and the offsets that a block visits.
//
// Rows are the product's M, 64 for each group of warps, and channels its N. Rows and weights of a stage of STAGE chunks
// are copied to shared memory DEPTH - 1 stages ahead of their use. From there a thread takes its share of the rows into
// registers, while the tensor cores read the weights themselves.
//
// A float32 is split into a tf32 part, which holds 11 bits, and a rest. Added are large * large in tf32, and rest *
// large and large * rest in bfloat16, which takes half the time and whose 8 bits are enough for products so small: the
// result errs by less than 1e-6 of its magnitude, as a long chain of float32 multiply-adds does. The tensor cores use
// the tf32 part of the weights' words as they are; the bfloat16 parts are made by the threads that copied the words,
// while the products of the stage before are under way. The sums of a stage are added to the running ones outside the
// tensor cores, whose own accumulation rounds toward zero. After Ootomo and Yokota (see implicit_gemm.cu), whose three
// products are all tf32.
//
// Macros: LOG_PIECES (log2 of the pieces of an input row, at least 2), OUT (output channels), ROWS, STAGE, DEPTH.

#include "offset_list.cuh"
#include "ptx.cuh"
#include "sites.cuh"
#include "warpgroup.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int COLS = 64;  // output channels of a block, the N of warpgroup.cuh
constexpr int THREADS = ROWS * 2;
constexpr int CHUNKS = (1 << LOG_PIECES) / 4;               // of a row
constexpr int ALIKE = STAGE < CHUNKS ? STAGE : CHUNKS;      // consecutive chunks of a stage with the same offset
constexpr int ROW_WORDS = ROWS * 4;                         // uint4 of a chunk of rows
constexpr int CHUNK = (ROWS + COLS) * 4;                    // uint4 of a chunk: rows, then four pieces of all channels
constexpr int PARTS = COLS * 4;                             // uint4 of its bfloat16 parts: two pieces of each of the two
constexpr int PAIRS = COLS * 2;                             // words of weights are copied and split by twos
constexpr int OWN_PAIRS = (PAIRS + THREADS - 1) / THREADS;  // of a thread
static_assert(LOG_PIECES >= 2 && ROWS % 64 == 0 && ROWS <= 128 && OUT % COLS == 0 && STAGE % ALIKE == 0 &&
                  CHUNKS % ALIKE == 0 && DEPTH >= 2,
              "tile shape");

// Starts the copies of one stage. `weights` begins at the block's first output channel.
__device__ __forceinline__ void load_stage(uint4* stage, int index, const uint4* __restrict__ input,
                                           const uint4* __restrict__ weights, const int* table, const unsigned* list) {
#pragma unroll
    for (int chunk = 0; chunk < STAGE; chunk += ALIKE) {
        const int position = index * STAGE + chunk, part = position % CHUNKS;
        const int offset = list[position / CHUNKS] & 0xffffu;
        uint4* to = stage + chunk * CHUNK;
        const uint4* from = weights + (static_cast<long long>(offset) * CHUNKS + part) * (OUT * 4);
#pragma unroll
        for (int j = 0; j < OWN_PAIRS; ++j) {
            const int i = j * THREADS + threadIdx.x, step = i / COLS, channel = i % COLS;
            if (PAIRS % THREADS != 0 && i >= PAIRS) break;
#pragma unroll
            for (int k = 0; k < ALIKE; ++k)
#pragma unroll
                for (int piece = 2 * step; piece < 2 * step + 2; ++piece)
                    copy_async(&to[k * CHUNK + ROW_WORDS + piece * COLS + channel],
                               from + (k * 4 + piece) * OUT + channel);
        }
        const int* rows = table + offset * ROWS;
        const uint4* own_input = input + part * 4 + threadIdx.x % 4;
#pragma unroll
        for (int j = 0; j < ROW_WORDS / THREADS; ++j) {
            const int i = j * THREADS + threadIdx.x, row = rows[i / 4];
            const uint4* word = own_input + (static_cast<long long>(max(row, 0)) << LOG_PIECES);
#pragma unroll
            for (int k = 0; k < ALIKE; ++k) copy_async_or_zero(&to[k * CHUNK + i], word + k * 4, row >= 0);
        }
    }
}

// The bfloat16 parts of two words that stand beside each other in the inner dimension; `low_large` and `high_large`
// are their tf32 parts.
__device__ __forceinline__ void split(unsigned low, unsigned high, unsigned low_large, unsigned high_large,
                                      unsigned& rest, unsigned& rough) {
    const float a = __uint_as_float(low_large), b = __uint_as_float(high_large);
    rest = pack_bfloat(__uint_as_float(low) - a, __uint_as_float(high) - b);
    rough = pack_bfloat(a, b);
}

// The same of weights: of their words the tensor cores use the upper 19 bits, which are the nearest tf32, and the rest
// is what the lower 13 bits count from 4096 (see pack_weight in convolve.py).
__device__ __forceinline__ void split_weights(unsigned low, unsigned high, unsigned& rest, unsigned& rough) {
    split(low, high, (low & 0xffffe000u) | 0x1000u, (high & 0xffffe000u) | 0x1000u, rest, rough);
}

// Makes the bfloat16 parts of the weights that this thread copied.
__device__ __forceinline__ void split_stage(uint4* parts, const uint4* stage) {
#pragma unroll
    for (int j = 0; j < OWN_PAIRS; ++j) {
        const int i = j * THREADS + threadIdx.x, step = i / COLS, channel = i % COLS;
        if (PAIRS % THREADS != 0 && i >= PAIRS) break;
#pragma unroll
        for (int k = 0; k < STAGE; ++k) {
            const uint4* words = stage + k * CHUNK + ROW_WORDS + 2 * step * COLS + channel;
            const uint4 low = words[0], high = words[COLS];
            uint4 rest, rough;
            split_weights(low.x, high.x, rest.x, rough.x);
            split_weights(low.y, high.y, rest.y, rough.y);
            split_weights(low.z, high.z, rest.z, rough.z);
            split_weights(low.w, high.w, rest.w, rough.w);
            parts[k * PARTS + step * COLS + channel] = rest;
            parts[k * PARTS + (2 + step) * COLS + channel] = rough;
        }
    }
}

// A thread's share of a chunk of rows.
struct Rows {
    unsigned large[2][4], rest[4], rough[4];

    __device__ __forceinline__ void load(const uint4* chunk) {
        const uint4 top = chunk[0], bottom = chunk[32];
        set(0, 0, top.x, top.y), set(0, 1, bottom.x, bottom.y);
        set(1, 0, top.z, top.w), set(1, 1, bottom.z, bottom.w);
    }

    // Two words of the upper or the lower 8 rows.
    __device__ __forceinline__ void set(int step, int lower, unsigned low, unsigned high) {
        unsigned& a = large[step][lower];
        unsigned& b = large[step][2 + lower];
        a = (low + 0x1000u) & 0xffffe000u;  // the nearest
        b = (high + 0x1000u) & 0xffffe000u;
        split(low, high, a, b, rest[2 * step + lower], rough[2 * step + lower]);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    warpgroup_gemm(const uint4* __restrict__ input, const uint4* __restrict__ weights, const float* __restrict__ bias,
                   const float* __restrict__ residual, float* __restrict__ out, const int* __restrict__ neighbours,
                   long long pitch, const int* __restrict__ count, int limit, int volume, int relu) {
    extern __shared__ uint4 shared[];
    const int first = blockIdx.x * ROWS, first_channel = blockIdx.y * COLS;
    const int n_rows = row_count(count, limit) - first;
    if (n_rows <= 0) return;
    uint4* parts = shared + DEPTH * STAGE * CHUNK;  // of two stages
    int* table = reinterpret_cast<int*>(parts + 2 * STAGE * PARTS);
    unsigned* list = reinterpret_cast<unsigned*>(table + (volume + 1) * ROWS);
    unsigned char* live = reinterpret_cast<unsigned char*>(list + volume + STAGE);
    const int listed = list_offsets<ROWS, THREADS, STAGE>(neighbours, pitch, volume, first, n_rows, table, live, list);
    const int stages = (listed * CHUNKS + STAGE - 1) / STAGE;
    weights += first_channel;

    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
    float sums[COLS / 2] = {};

#pragma unroll
    for (int s = 0; s < DEPTH - 1; ++s) {
        if (s < stages) load_stage(shared + s * (STAGE * CHUNK), s, input, weights, table, list);
        commit_copies();
    }
    wait_copies<DEPTH - 2>();
    if (stages > 0) split_stage(parts, shared);
    fence_shared_writes();
    __syncthreads();
    for (int s = 0; s < stages; ++s) {
        const uint4* stage = shared + s % DEPTH * (STAGE * CHUNK);
        const uint4* own_parts = parts + s % 2 * (STAGE * PARTS);
        Rows rows[STAGE];
#pragma unroll
        for (int k = 0; k < STAGE; ++k) rows[k].load(stage + k * CHUNK + warp * 64 + lane);
        float products[COLS / 2];
        fence_registers();
#pragma unroll
        for (int k = 0; k < STAGE; ++k) {  // the small ones first
            multiply_bfloat(products, rows[k].rest, matrix_in_shared(own_parts + k * PARTS + 2 * COLS, COLS * 16), k);
            multiply_bfloat(products, rows[k].rough, matrix_in_shared(own_parts + k * PARTS, COLS * 16), true);
        }
#pragma unroll
        for (int k = 0; k < STAGE; ++k)
#pragma unroll
            for (int step = 0; step < 2; ++step)
                multiply_tf32(products, rows[k].large[step],
                              matrix_in_shared(stage + k * CHUNK + ROW_WORDS + 2 * step * COLS, COLS * 16), true);
        commit_products();
        const int next = s + DEPTH - 1;
        if (next < stages) load_stage(shared + next % DEPTH * (STAGE * CHUNK), next, input, weights, table, list);
        commit_copies();
        wait_copies<DEPTH - 2>();  // this thread's copies of the next stage have arrived
        if (s + 1 < stages)
            split_stage(parts + (s + 1) % 2 * (STAGE * PARTS), shared + (s + 1) % DEPTH * (STAGE * CHUNK));
        fence_shared_writes();
        wait_products(products);
#pragma unroll
        for (int k = 0; k < STAGE; ++k) {
            hold_registers(rows[k].large[0]), hold_registers(rows[k].large[1]);
            hold_registers(rows[k].rest), hold_registers(rows[k].rough);
        }
#pragma unroll
        for (int i = 0; i < COLS / 2; ++i) sums[i] += products[i];
        __syncthreads();  // all are done with stage s, and the next has arrived for all
    }

#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int row = warp * 16 + e * 8 + g;
        if (row >= n_rows) continue;
#pragma unroll
        for (int j = 0; j < COLS / 8; ++j) {
            const int channel = first_channel + 8 * j + 2 * t;
            const long long place = static_cast<long long>(first + row) * OUT + channel;
            float2 value = make_float2(sums[4 * j + 2 * e], sums[4 * j + 2 * e + 1]);
            value.x += bias[channel], value.y += bias[channel + 1];
            if (residual) {
                const float2 added = *reinterpret_cast<const float2*>(residual + place);
                value.x += added.x, value.y += added.y;
            }
            if (relu) value = make_float2(value.x < 0.0f ? 0.0f : value.x, value.y < 0.0f ? 0.0f : value.y);
            *reinterpret_cast<float2*>(out + place) = value;
        }
    }
}

#endif
