// Output-stationary sparse convolution on tensor cores: out = relu(sum_k in[neighbours[k]] * W_k + bias + residual).
//
// The sum over kernel offsets and input channels is one long inner dimension of a matrix product whose left operand is
// gathered (an implicit GEMM, as dense convolution libraries do it). A block owns ROWS output rows and COLS output
// channels, keeps their sums in registers from the first offset to the last, and visits only the offsets that some of
// its rows have. The inner dimension is cut into pieces of 16 bytes, which never straddle an offset, and chunks of four
// pieces: 32 float16 or 16 float32 channels.
//
// float32 (HALF = 0) splits each operand into two tf32 parts and adds three of the four products; the sums of a chunk
// are added to the running ones outside the tensor core, whose own accumulation rounds toward zero. Ootomo and Yokota,
// "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance",
// IJHPCA 2022, sections 4.1 and 4.2.
//
// Macros: HALF, ROWS, COLS, WARPS_M, WARPS_N, DEPTH (stages of the copy pipeline), SPAN (chunks of a stage).

#include "ptx.cuh"
#include "sites.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

#if HALF
typedef unsigned short Element;
#else
typedef float Element;
#endif

constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int M_TILES = ROWS / WARPS_M / 16;  // of a warp
constexpr int N_TILES = COLS / WARPS_N / 8;
constexpr int STAGE = SPAN * (ROWS + COLS) * 4;  // uint4 of one stage: rows of four pieces
static_assert(ROWS % 32 == 0 && ROWS % (16 * WARPS_M) == 0 && COLS % (8 * WARPS_N) == 0 && THREADS % COLS == 0 &&
                  N_TILES % 2 == 0,
              "tile shape");

// Swizzle: keeps both the loads (same piece of many rows) and the fragment reads (all pieces of two rows) free of bank
// conflicts.
__device__ __forceinline__ int slot(int row, int piece) { return row * 4 + (piece ^ ((row >> 1) & 3)); }

struct Operands {
    const uint4* input;    // (rows, pieces)
    const uint4* weights;  // (offset, piece, output channel)
    int log_pieces;        // log2 of the pieces of one input row
    int out_channels;
};

// The offsets that this block visits, as offset | live << 16: bit i of `live` is set when rows [16 i, 16 i + 16) have it.
__device__ __forceinline__ int list_offsets(const int* __restrict__ neighbours, long long pitch, int volume, int first,
                                            int rows, int* table, unsigned char* live, unsigned* list) {
    __shared__ int listed;
    constexpr int BATCH = 8;  // loads in flight at a time: their latency is most of the time spent here
    for (int start = threadIdx.x; start < volume * ROWS; start += BATCH * THREADS) {
        int values[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; ++j) {
            const int i = start + j * THREADS, row = i % ROWS;
            values[j] = i < volume * ROWS && row < rows ? neighbours[i / ROWS * pitch + first + row] : -1;
        }
#pragma unroll
        for (int j = 0; j < BATCH; ++j) {
            const int i = start + j * THREADS;
            if (i >= volume * ROWS) break;  // for the whole warp
            table[i] = values[j];
            const unsigned have = __ballot_sync(0xffffffffu, values[j] >= 0);
            if ((threadIdx.x & 31) == 0) live[i / 32] = (have & 0xffffu ? 1 : 0) | (have >> 16 ? 2 : 0);
        }
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        int found = 0;
        for (int base = 0; base < volume; base += 32) {
            const int offset = base + threadIdx.x;
            unsigned mask = 0;
            if (offset < volume)
                for (int i = 0; i < ROWS / 32; ++i) mask |= live[offset * (ROWS / 32) + i] << (2 * i);
            const unsigned have = __ballot_sync(0xffffffffu, mask != 0);
            if (mask) list[found + __popc(have & ((1u << threadIdx.x) - 1))] = offset | mask << 16;
            found += __popc(have);
        }
        if (threadIdx.x == 0) listed = found;
    }
    __syncthreads();
    return listed;
}

// Starts the copies of one stage: gathered input rows and the weights of the block's output channels.
__device__ __forceinline__ void load_stage(uint4* stage, int index, const Operands& p, const int* table,
                                           const unsigned* list, int listed, int first_channel) {
    const int last_piece = (1 << p.log_pieces) - 1;
#pragma unroll
    for (int span = 0; span < SPAN; ++span) {
        const int chunk = index * SPAN + span;
        uint4* a = stage + span * (ROWS + COLS) * 4;
        uint4* b = a + ROWS * 4;
        {
            const int q = chunk * 4 + (threadIdx.x & 3), entry = q >> p.log_pieces;
            const int offset = entry < listed ? static_cast<int>(list[entry] & 0xffffu) : -1;
#pragma unroll
            for (int row = threadIdx.x >> 2; row < ROWS; row += THREADS / 4) {
                const int source = offset >= 0 ? table[offset * ROWS + row] : -1;
                const uint4* from =
                    source >= 0 ? p.input + (static_cast<long long>(source) << p.log_pieces) + (q & last_piece) : p.input;
                copy_async(&a[slot(row, threadIdx.x & 3)], from, source >= 0);
            }
        }
        const int channel = threadIdx.x % COLS;
#pragma unroll
        for (int piece = threadIdx.x / COLS; piece < 4; piece += THREADS / COLS) {
            const int q = chunk * 4 + piece, entry = q >> p.log_pieces;
            const uint4* from = p.weights;
            if (entry < listed) {
                const int row = ((list[entry] & 0xffffu) << p.log_pieces) + (q & last_piece);
                from += static_cast<long long>(row) * p.out_channels + first_channel + channel;
            }
            copy_async(&b[slot(channel, piece)], from, entry < listed);
        }
    }
}

// N words of an operand's fragment; for float32 the nearest tf32 of each and what remains as another, which together
// keep 22 of the 24 significand bits.
template <int N>
struct Fragment {
    unsigned large[N];
#if !HALF
    unsigned small[N];
#endif
    __device__ __forceinline__ void set(int first, const uint4& words) {
        const unsigned w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#if HALF
            large[first + i] = w[i];
#else
            large[first + i] = (w[i] + 0x1000u) & 0xffffe000u;
            const float rest = __uint_as_float(w[i]) - __uint_as_float(large[first + i]);
            small[first + i] = (__float_as_uint(rest) + 0x1000u) & 0xffffe000u;
#endif
        }
    }
};

// sums += a 16-row tile (words 0-3: row g, 4-7: row g + 8) of one chunk times 8 channels.
__device__ __forceinline__ void multiply(float (&sums)[4], const Fragment<8>& a, const Fragment<4>& b) {
#if HALF
    mma_half(sums, a.large[0], a.large[4], a.large[1], a.large[5], b.large[0], b.large[1]);
    mma_half(sums, a.large[2], a.large[6], a.large[3], a.large[7], b.large[2], b.large[3]);
#else
    float chunk[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        mma_tf32(chunk, a.small[i], a.small[i + 4], a.small[i + 1], a.small[i + 5], b.large[i], b.large[i + 1]);
        mma_tf32(chunk, a.large[i], a.large[i + 4], a.large[i + 1], a.large[i + 5], b.small[i], b.small[i + 1]);
        mma_tf32(chunk, a.large[i], a.large[i + 4], a.large[i + 1], a.large[i + 5], b.large[i], b.large[i + 1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += chunk[i];
#endif
}

// The 2 * N_TILES consecutive channels that a thread holds of one row, as 8-byte words.
struct __align__(8) Word {
#if HALF
    Element v[4];
    __device__ float get(int i) const { return half_to_float(v[i]); }
    __device__ void set(int i, float value) { v[i] = float_to_half(value); }
#else
    Element v[2];
    __device__ float get(int i) const { return v[i]; }
    __device__ void set(int i, float value) { v[i] = value; }
#endif
};

__device__ __forceinline__ void store_row(const float (&sums)[N_TILES][4], int half, long long first, int channel,
                                          const float* __restrict__ bias, const Element* __restrict__ residual, int relu,
                                          Element* __restrict__ out) {
    constexpr int WIDTH = sizeof(Word) / sizeof(Element);
#pragma unroll
    for (int i = 0; i < 2 * N_TILES; i += WIDTH) {
        Word word, added;
        if (residual) added = *reinterpret_cast<const Word*>(residual + first + i);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            float value = sums[(i + j) / 2][2 * half + (j & 1)] + bias[channel + i + j];
            if (residual) value += added.get(j);
            word.set(j, relu && value < 0.0f ? 0.0f : value);
        }
        *reinterpret_cast<Word*>(out + first + i) = word;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    implicit_gemm(const uint4* __restrict__ input, const uint4* __restrict__ weights, const float* __restrict__ bias,
                  const Element* __restrict__ residual, Element* __restrict__ out, const int* __restrict__ neighbours,
                  long long pitch, const int* __restrict__ count, int limit, int volume, int log_pieces,
                  int out_channels, int relu) {
    extern __shared__ uint4 shared[];
    const int first = blockIdx.x * ROWS, first_channel = blockIdx.y * COLS;
    const int rows = row_count(count, limit) - first;
    if (rows <= 0) return;
    int* table = reinterpret_cast<int*>(shared + DEPTH * STAGE);
    unsigned* list = reinterpret_cast<unsigned*>(table + volume * ROWS);
    unsigned char* live = reinterpret_cast<unsigned char*>(list + volume);
    const int listed = list_offsets(neighbours, pitch, volume, first, rows, table, live, list);
    const Operands operands{input, weights, log_pieces, out_channels};
    const int chunks = ((listed << log_pieces) + 3) / 4, stages = (chunks + SPAN - 1) / SPAN;

    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
    const int g = lane >> 2, t = lane & 3;  // a thread's row and piece in a fragment
    float sums[M_TILES][N_TILES][4] = {};

#pragma unroll
    for (int s = 0; s < DEPTH - 1; ++s) {
        if (s < stages) load_stage(shared + s * STAGE, s, operands, table, list, listed, first_channel);
        commit_copies();
    }
    for (int s = 0; s < stages; ++s) {
        wait_copies<DEPTH - 2>();
        __syncthreads();  // stage s has arrived for all threads, and all are done with the stage loaded next
        const int ahead = s + DEPTH - 1;
        if (ahead < stages)
            load_stage(shared + ahead % DEPTH * STAGE, ahead, operands, table, list, listed, first_channel);
        commit_copies();
#pragma unroll
        for (int span = 0; span < SPAN; ++span) {
            const int chunk = s * SPAN + span;
            unsigned live_rows = 0;
            const int last = min((chunk * 4 + 3) >> log_pieces, listed - 1);
            for (int entry = chunk * 4 >> log_pieces; entry <= last; ++entry) live_rows |= list[entry] >> 16;
            if ((live_rows >> (warp_m * M_TILES) & ((1u << M_TILES) - 1)) == 0) continue;
            const uint4* a = shared + s % DEPTH * STAGE + span * (ROWS + COLS) * 4;
            Fragment<8> rows_of[M_TILES];
#pragma unroll
            for (int i = 0; i < M_TILES; ++i) {
                const int row = (warp_m * M_TILES + i) * 16 + g;
                rows_of[i].set(0, a[slot(row, t)]);
                rows_of[i].set(4, a[slot(row + 8, t)]);
            }
#pragma unroll
            for (int j = 0; j < N_TILES; ++j) {
                // Column g of tile j stands for the channel that gives thread t consecutive channels in the end.
                const int column = warp_n * 8 * N_TILES + (g >> 1) * 2 * N_TILES + 2 * j + (g & 1);
                Fragment<4> b;
                b.set(0, a[ROWS * 4 + slot(column, t)]);
#pragma unroll
                for (int i = 0; i < M_TILES; ++i) multiply(sums[i][j], rows_of[i], b);
            }
        }
    }

    const int channel = first_channel + (warp_n * 4 + t) * 2 * N_TILES;
#pragma unroll
    for (int i = 0; i < M_TILES; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = (warp_m * M_TILES + i) * 16 + half * 8 + g;
            if (row < rows)
                store_row(sums[i], half, static_cast<long long>(first + row) * out_channels + channel, channel, bias,
                          residual, relu, out);
        }
}

#endif
