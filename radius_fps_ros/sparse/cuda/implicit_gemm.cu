// Output-stationary sparse convolution on tensor cores: out = relu(sum_k in[neighbours[k]] * W_k + bias + residual).
//
// The sum over kernel offsets and input channels is one long inner dimension of a matrix product with one gathered
// operand (an implicit GEMM, as dense convolution libraries do it). A block owns ROWS output rows and COLS output
// channels, keeps their sums in registers from the first offset to the last, and visits only the offsets that some of
// its rows have.
//
// The inner dimension is cut into pieces of 16 bytes, which never straddle an offset, and chunks of four pieces: 32
// float16 or 16 float32 channels. Channels are the product's M and rows its N: then a thread's part of the gathered
// operand is one piece of one row, loaded straight into the registers that the tensor core reads, RING chunks ahead of
// its use. The weights come in the order of the fragments (pack_weight in convolve.py) through shared memory, because
// all warps share them. There are few rows, so what limits is latency: SPLIT groups of warps share a block's tile and
// take turns in its offsets, which multiplies the loads under way; their sums are added in order at the end.
//
// float32 (HALF = 0) splits each operand into two tf32 parts and adds three of the four products; the sums of a chunk
// are added to the running ones outside the tensor core, whose own accumulation rounds toward zero. Ootomo and Yokota,
// "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance",
// IJHPCA 2022, sections 4.1 and 4.2.
//
// Macros: HALF, LOG_PIECES (log2 of the pieces of an input row), OUT (output channels), ROWS, COLS, WARPS_R and WARPS_C
// (warps along rows and channels), SPLIT, RING, DEPTH (stages of the weights' copy pipeline), SPAN (units of a stage for
// each group).

#include "offset_list.cuh"
#include "ptx.cuh"
#include "sites.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

#if HALF
typedef unsigned short Element;
#else
typedef float Element;
#endif

constexpr int TEAM = 32 * WARPS_R * WARPS_C;  // threads of a group
constexpr int THREADS = TEAM * SPLIT;
constexpr int PIECES = 1 << LOG_PIECES;
// A unit is what a group visits at a time: one offset in CHUNKS chunks, or SHARING narrow ones in one chunk.
constexpr int SHARING = PIECES < 4 ? 4 / PIECES : 1;
constexpr int CHUNKS = PIECES < 4 ? 1 : PIECES / 4;
constexpr int M_TILES = COLS / WARPS_C / 16;  // of a warp, 16 channels each
constexpr int N_TILES = ROWS / WARPS_R / 8;   // of a warp, 8 rows each
constexpr int CHUNK = COLS * 4;               // uint4 of a chunk of weights
constexpr int UNIT = CHUNKS * CHUNK;
constexpr int STAGE_UNITS = SPAN * SPLIT;
constexpr int STAGE = STAGE_UNITS * UNIT;
constexpr int PADDING = (STAGE_UNITS + (RING / CHUNKS + 2) * SPLIT) * SHARING;  // entries behind the list, read ahead
// A thread ends with RUN consecutive channels of each group of GROUP: TILES_OF_GROUP tiles, two channels of each.
constexpr int GROUP = OUT < 32 ? OUT : 32;
constexpr int TILES_OF_GROUP = GROUP / 16;
constexpr int RUN = 2 * TILES_OF_GROUP;
static_assert(ROWS % 32 == 0 && ROWS <= 128 && ROWS % (8 * WARPS_R) == 0 && COLS % (GROUP * WARPS_C) == 0 &&
                  OUT % COLS == 0 && N_TILES % SPLIT == 0,
              "tile shape");
static_assert(SPAN * CHUNKS % RING == 0 && (CHUNKS % RING == 0 || RING % CHUNKS == 0), "ring");

// Starts the copies of one stage of weights. `weights` begins at the block's first output channel.
__device__ __forceinline__ void load_weights(uint4* stage, int index, const uint4* __restrict__ weights,
                                             const unsigned* list) {
    constexpr int COPIES = (CHUNK + THREADS - 1) / THREADS;  // of a thread for one chunk
#pragma unroll
    for (int i_unit = 0; i_unit < STAGE_UNITS; ++i_unit) {
        const unsigned* entries = list + (index * STAGE_UNITS + i_unit) * SHARING;
        uint4* unit = stage + i_unit * UNIT;
#pragma unroll
        for (int j = 0; j < COPIES; ++j) {
            const int i = j * THREADS + threadIdx.x;
            if (CHUNK % THREADS != 0 && i >= CHUNK) break;
            if (SHARING == 1) {
                const uint4* from = weights + static_cast<long long>(entries[0] & 0xffffu) * (PIECES * OUT) + i;
#pragma unroll
                for (int chunk = 0; chunk < CHUNKS; ++chunk)
                    copy_async(&unit[chunk * CHUNK + i], from + chunk * 4 * OUT);
            } else {
                const int piece = i / COLS, place = i % COLS;
                const int row = (entries[piece >> LOG_PIECES] & 0xffffu) * PIECES + (piece & (PIECES - 1));
                copy_async(&unit[place / 8 * 32 + place % 8 * 4 + piece], weights + row * OUT + place);
            }
        }
    }
}

// This thread's pieces of its N_TILES rows, RING chunks ahead: first where the rows are, then what they hold.
struct Gather {
    int found[N_TILES];  // row in the unit after the one that is fetched, or -1
    int row[N_TILES];
    uint4 value[RING][N_TILES];

    __device__ __forceinline__ void locate(const int* table, const unsigned* entries, int piece) {
        const int* line = table + (entries[SHARING == 1 ? 0 : piece >> LOG_PIECES] & 0xffffu) * ROWS;
#pragma unroll
        for (int j = 0; j < N_TILES; ++j) found[j] = line[8 * j];
    }

    __device__ __forceinline__ void advance() {
#pragma unroll
        for (int j = 0; j < N_TILES; ++j) row[j] = found[j];
    }

    __device__ __forceinline__ void fetch(int slot, const uint4* __restrict__ input) {
#pragma unroll
        for (int j = 0; j < N_TILES; ++j) {
            value[slot][j] = make_uint4(0, 0, 0, 0);
            if (row[j] >= 0) value[slot][j] = input[static_cast<long long>(row[j]) * PIECES];
        }
    }
};

#if !HALF
// The nearest tf32, and the rest as another (the tensor core ignores what is below its 11 bits).
__device__ __forceinline__ void split(unsigned word, unsigned& large, unsigned& small) {
    large = (word + 0x1000u) & 0xffffe000u;
    small = __float_as_uint(__uint_as_float(word) - __uint_as_float(large));
}
#endif

// sums += one chunk of the warp's weights times one chunk of its rows.
__device__ __forceinline__ void multiply(float (&sums)[M_TILES][N_TILES][4], const uint4* weights,
                                         const uint4 (&rows)[N_TILES]) {
#if HALF
#pragma unroll
    for (int i = 0; i < M_TILES; ++i) {
        const uint4 low = weights[i * 64], high = weights[i * 64 + 32];
#pragma unroll
        for (int j = 0; j < N_TILES; ++j) mma_half(sums[i][j], low.x, low.y, low.z, low.w, rows[j].x, rows[j].y);
#pragma unroll
        for (int j = 0; j < N_TILES; ++j) mma_half(sums[i][j], high.x, high.y, high.z, high.w, rows[j].z, rows[j].w);
    }
#else
    unsigned large[N_TILES][4], small[N_TILES][4];
#pragma unroll
    for (int j = 0; j < N_TILES; ++j) {
        split(rows[j].x, large[j][0], small[j][0]);
        split(rows[j].y, large[j][1], small[j][1]);
        split(rows[j].z, large[j][2], small[j][2]);
        split(rows[j].w, large[j][3], small[j][3]);
    }
#pragma unroll
    for (int i = 0; i < M_TILES; ++i) {
        float chunk[N_TILES][4] = {};
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const uint4 word = weights[i * 64 + step * 32];
            unsigned a[4], b[4];
            split(word.x, a[0], b[0]);
            split(word.y, a[1], b[1]);
            split(word.z, a[2], b[2]);
            split(word.w, a[3], b[3]);
            const int k = 2 * step;
#pragma unroll
            for (int j = 0; j < N_TILES; ++j) mma_tf32(chunk[j], b[0], b[1], b[2], b[3], large[j][k], large[j][k + 1]);
#pragma unroll
            for (int j = 0; j < N_TILES; ++j) mma_tf32(chunk[j], a[0], a[1], a[2], a[3], small[j][k], small[j][k + 1]);
#pragma unroll
            for (int j = 0; j < N_TILES; ++j) mma_tf32(chunk[j], a[0], a[1], a[2], a[3], large[j][k], large[j][k + 1]);
        }
#pragma unroll
        for (int j = 0; j < N_TILES; ++j)
#pragma unroll
            for (int c = 0; c < 4; ++c) sums[i][j][c] += chunk[j][c];
    }
#endif
}

// RUN consecutive channels of one row in memory.
struct __align__(RUN * sizeof(Element)) Run {
    Element v[RUN];
#if HALF
    __device__ __forceinline__ float get(int i) const { return half_to_float(v[i]); }
    __device__ __forceinline__ void set(int i, float value) { v[i] = float_to_half(value); }
#else
    __device__ __forceinline__ float get(int i) const { return v[i]; }
    __device__ __forceinline__ void set(int i, float value) { v[i] = value; }
#endif
};

extern "C" __global__ void __launch_bounds__(THREADS)
    implicit_gemm(const uint4* __restrict__ input, const uint4* __restrict__ weights, const float* __restrict__ bias,
                  const Element* __restrict__ residual, Element* __restrict__ out, const int* __restrict__ neighbours,
                  long long pitch, const int* __restrict__ count, int limit, int volume, int relu) {
    extern __shared__ uint4 shared[];
    const int first = blockIdx.x * ROWS, first_channel = blockIdx.y * COLS;
    const int rows = row_count(count, limit) - first;
    if (rows <= 0) return;
    // The sums that groups exchange at the end take the place of the weights.
    constexpr int EXCHANGE = SPLIT > 1 ? SPLIT * M_TILES * N_TILES * TEAM : 0;
    int* table = reinterpret_cast<int*>(shared + (DEPTH * STAGE > EXCHANGE ? DEPTH * STAGE : EXCHANGE));
    unsigned* list = reinterpret_cast<unsigned*>(table + (volume + 1) * ROWS);
    unsigned char* live = reinterpret_cast<unsigned char*>(list + volume + PADDING);
    const int listed =
        list_offsets<ROWS, THREADS, PADDING>(neighbours, pitch, volume, first, rows, table, live, list);
    const int units = (listed + SHARING - 1) / SHARING, stages = (units + STAGE_UNITS - 1) / STAGE_UNITS;
    weights += first_channel * (SHARING == 1 ? 4 : 1);

    const int lane = threadIdx.x & 31, group = threadIdx.x / TEAM, warp = threadIdx.x % TEAM / 32;
    const int warp_r = warp % WARPS_R, warp_c = warp / WARPS_R;
    const int g = lane >> 2, t = lane & 3;  // a thread's row (or channel) and piece in a fragment
    const unsigned live_mask = ((1u << N_TILES) - 1) << (16 + warp_r * N_TILES);
    const uint4* own_input = input + (t & (PIECES - 1));
    const int* own_table = table + warp_r * N_TILES * 8 + g;
    const unsigned* own_list = list + group * SHARING;  // the group's units are `group`, `group` + SPLIT, ...
    constexpr int STEP = SPLIT * SHARING;
    float sums[M_TILES][N_TILES][4] = {};

#pragma unroll
    for (int s = 0; s < DEPTH - 1; ++s) {
        if (s < stages) load_weights(shared + s * STAGE, s, weights, list);
        commit_copies();
    }
    Gather ahead;
    const unsigned* located = own_list;
    ahead.locate(own_table, located, t);
#pragma unroll
    for (int q = 0; q < RING; ++q) {
        if (q % CHUNKS == 0) {
            ahead.advance();
            ahead.locate(own_table, located += STEP, t);
        }
        ahead.fetch(q, own_input + q % CHUNKS * 4);
    }
    for (int s = 0; s < stages; ++s) {
        wait_copies<DEPTH - 2>();
        __syncthreads();  // stage s has arrived for all threads, and all are done with the stage loaded next
        if (s + DEPTH - 1 < stages)
            load_weights(shared + (s + DEPTH - 1) % DEPTH * STAGE, s + DEPTH - 1, weights, list);
        commit_copies();
        const uint4* own_weights = shared + s % DEPTH * STAGE + group * UNIT + warp_c * M_TILES * 64 + lane;
#pragma unroll
        for (int span = 0; span < SPAN; ++span) {
            unsigned entries = 0;
#pragma unroll
            for (int i = 0; i < SHARING; ++i) entries |= own_list[(s * SPAN + span) * STEP + i];
            const bool live = entries & live_mask;  // whether any of the warp's rows has these offsets
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                constexpr int TURN = RING > CHUNKS ? RING / CHUNKS : 1;
                const int slot = span % TURN * CHUNKS + chunk % RING, next = (chunk + RING) % CHUNKS;
                if (live)
                    multiply(sums, own_weights + span * SPLIT * UNIT + chunk * CHUNK, ahead.value[slot]);
                if (next == 0) {
                    ahead.advance();
                    ahead.locate(own_table, located += STEP, t);
                }
                ahead.fetch(slot, own_input + next * 4);
            }
        }
    }

    float4* exchange = reinterpret_cast<float4*>(shared);
    if (SPLIT > 1) {
        __syncthreads();  // the weights are done with
#pragma unroll
        for (int i = 0; i < M_TILES; ++i)
#pragma unroll
            for (int j = 0; j < N_TILES; ++j)
                exchange[((j * SPLIT + group) * M_TILES + i) * TEAM + threadIdx.x % TEAM] =
                    make_float4(sums[i][j][0], sums[i][j][1], sums[i][j][2], sums[i][j][3]);
        __syncthreads();
    }
#pragma unroll
    for (int turn = 0; turn < N_TILES / SPLIT; ++turn) {
        const int j = turn * SPLIT + (SPLIT > 1 ? group : 0);  // each group finishes its share of the rows
        if (SPLIT > 1) {
#pragma unroll
            for (int i = 0; i < M_TILES; ++i) {
                float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
                for (int from = 0; from < SPLIT; ++from) {
                    const float4 part = exchange[((j * SPLIT + from) * M_TILES + i) * TEAM + threadIdx.x % TEAM];
                    sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
                }
                sums[i][turn][0] = sum.x, sums[i][turn][1] = sum.y, sums[i][turn][2] = sum.z, sums[i][turn][3] = sum.w;
            }
        }
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int row = (warp_r * N_TILES + j) * 8 + 2 * t + e;
            if (row >= rows) continue;
#pragma unroll
            for (int part = 0; part < M_TILES / TILES_OF_GROUP; ++part) {
                const int channel = first_channel + (warp_c * M_TILES / TILES_OF_GROUP + part) * GROUP + g * RUN;
                const long long place = static_cast<long long>(first + row) * OUT + channel;
                Run run, added;
                if (residual) added = *reinterpret_cast<const Run*>(residual + place);
#pragma unroll
                for (int c = 0; c < RUN; ++c) {
                    float value = sums[part * TILES_OF_GROUP + c / 2][turn][2 * (c & 1) + e] + bias[channel + c];
                    if (residual) value += added.get(c);
                    run.set(c, relu && value < 0.0f ? 0.0f : value);
                }
                *reinterpret_cast<Run*>(out + place) = run;
            }
        }
    }
}

#endif
