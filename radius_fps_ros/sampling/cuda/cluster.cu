// Farthest point sampling by one cluster of blocks, all points in registers. A sample costs one message from each warp
// to each block.
//
// Macros: THREADS (of a block), HELD (points of a thread).
#include "cluster.cuh"
#include "in_registers.cuh"

#if __CUDA_ARCH__ >= 900

constexpr int BLOCKS = 8;  // as many as every device with clusters takes
constexpr int WARPS = BLOCKS * THREADS / 32;

// Two sets of letters, by turns. A warp can be one sample ahead of another, never two, because it needs a letter of
// each: so a set is written again only after every warp of the cluster has read it.
struct Exchange {
    const Letter (*mail)[WARPS];
    u32 own_barriers, their_letter, their_barriers;  // of block `lane`

    __device__ __forceinline__ const Letter* operator()(u32 count, const Letter& letter, u32 owner) const {
        const u32 set = count % 2, barrier = 8 * set;
        const Point p = shuffle(letter.point, owner);
        const uint4 words = {letter.key, __float_as_uint(p.x), __float_as_uint(p.y), __float_as_uint(p.z)};
        if (lane_id() < BLOCKS)
            send_16_bytes(their_letter + set * sizeof(*mail), words, their_barriers + barrier);
        wait_for_bytes(own_barriers + barrier, (count - 1) / 2 % 2);
        if (threadIdx.x == 0) expect_bytes(own_barriers + barrier, sizeof(*mail));
        return mail[set];
    }
};

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
    cluster(const float* __restrict__ points, u32 n, const u32* start_at, u32 start, u32 n_samples, long long* indices,
            Summary* summary) {
    __shared__ Letter mail[2][WARPS];
    __shared__ u64 barriers[2];
    if (!find_start(points, n, start_at, start)) {
        if (blockIdx.x == 0 && threadIdx.x == 0) *summary = {0, 0, 0, 0, 0};
        return;
    }
    const u32 own_barriers = shared_address(barriers), block = lane_id() % BLOCKS;
    const u32 warp = (blockIdx.x * THREADS + threadIdx.x) / 32;
    if (threadIdx.x == 0)
        for (int set = 0; set < 2; ++set) {
            init_byte_barrier(own_barriers + 8 * set);
            expect_bytes(own_barriers + 8 * set, sizeof(*mail));
        }
    const u32 their_letter = in_block(block, shared_address(&mail[0][warp]));
    cluster_barrier();  // nobody sends before all barriers count
    const Exchange exchange = {mail, own_barriers, their_letter, in_block(block, own_barriers)};
    sample_in_registers<HELD, WARPS>(points, n, start, n_samples, warp, indices, summary, exchange);
    cluster_barrier();  // shared memory lives until the last letter has come
}

#endif
