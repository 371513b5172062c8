// The kernel offsets that a block of an implicit GEMM visits: those that some of its rows have.

// Lists them as offset | live << 16, and returns how many: bit i of `live` is set when rows [8 i, 8 i + 8) have it.
// `table` receives the block's part of the neighbour table. Behind the list, BEHIND times, and behind the table stands
// the offset `volume`, which no row has and whose weights are zero.
template <int TABLE_ROWS, int WORKERS, int BEHIND>
__device__ __forceinline__ int list_offsets(const int* __restrict__ neighbours, long long pitch, int volume, int first,
                                            int rows, int* table, unsigned char* live, unsigned* list) {
    __shared__ int listed;
    constexpr int BATCH = 8;  // loads in flight at a time: their latency is most of the time spent here
    const int entries = (volume + 1) * TABLE_ROWS;
    for (int start = threadIdx.x; start < entries; start += BATCH * WORKERS) {
        int values[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; ++j) {
            const int i = start + j * WORKERS, offset = i / TABLE_ROWS, row = i % TABLE_ROWS;
            values[j] = offset < volume && row < rows ? neighbours[offset * pitch + first + row] : -1;
        }
#pragma unroll
        for (int j = 0; j < BATCH; ++j) {
            const int i = start + j * WORKERS;
            if (i >= entries) break;  // for the whole warp
            table[i] = values[j];
            const unsigned have = __ballot_sync(0xffffffffu, values[j] >= 0);
            if ((threadIdx.x & 31) == 0)
                live[i / 32] = (have & 0xffu ? 1 : 0) | (have & 0xff00u ? 2 : 0) | (have & 0xff0000u ? 4 : 0) |
                               (have & 0xff000000u ? 8 : 0);
        }
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        int found = 0;
        for (int base = 0; base < volume; base += 32) {
            const int offset = base + threadIdx.x;
            unsigned mask = 0;
            if (offset < volume)
                for (int i = 0; i < TABLE_ROWS / 32; ++i) mask |= live[offset * (TABLE_ROWS / 32) + i] << (4 * i);
            const unsigned have = __ballot_sync(0xffffffffu, mask != 0);
            if (mask) list[found + __popc(have & ((1u << threadIdx.x) - 1))] = offset | mask << 16;
            found += __popc(have);
        }
        for (int i = threadIdx.x; i < BEHIND; i += 32) list[found + i] = volume;
        if (threadIdx.x == 0) listed = found;
    }
    __syncthreads();
    return listed;
}
