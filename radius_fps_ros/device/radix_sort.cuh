// One pass of a stable least-significant-digit radix sort that the whole grid takes part in. The items are cut into
// one contiguous run for each warp, in order; the caller counts the digits of its runs (clear, add, publish) and, once
// all blocks have published, asks where its items go (find, take). That no atomic decides a place makes it stable.
#pragma once

template <int THREADS, int DIGIT_BITS>
struct DigitPlaces {
    static constexpr int WARPS = THREADS / 32, DIGITS = 1 << DIGIT_BITS, PARTS = THREADS / DIGITS;
    static_assert(PARTS >= 1, "a thread for each digit is needed");

    // Of each warp: how many of its items have each digit; after `find` where its next item of the digit goes.
    unsigned of_warp[WARPS][DIGITS];
    unsigned total[PARTS][DIGITS], before[PARTS][DIGITS], warp_totals[DIGITS / 32];

    __device__ void clear() {
        for (int i = threadIdx.x; i < WARPS * DIGITS; i += THREADS) (&of_warp[0][0])[i] = 0;
        __syncthreads();
    }

    __device__ void add(unsigned digit) { atomicAdd(&of_warp[threadIdx.x / 32][digit], 1u); }

    // `counts`: DIGITS for each block.
    __device__ void publish(unsigned* counts) {
        __syncthreads();
        for (int digit = threadIdx.x; digit < DIGITS; digit += THREADS) {
            unsigned sum = 0;
            for (int warp = 0; warp < WARPS; ++warp) sum += of_warp[warp][digit];
            counts[blockIdx.x * DIGITS + digit] = sum;
        }
    }

    // Returns how many items there are in all blocks.
    __device__ unsigned find(const unsigned* counts) {
        const int digit = threadIdx.x % DIGITS, part = threadIdx.x / DIGITS, lane = threadIdx.x & 31;
        unsigned all = 0, earlier = 0;
#pragma unroll 8
        for (int block = part; block < gridDim.x; block += PARTS) {
            const unsigned count = __ldcg(&counts[block * DIGITS + digit]);
            all += count;
            earlier += block < blockIdx.x ? count : 0;
        }
        total[part][digit] = all;
        before[part][digit] = earlier;
        __syncthreads();
        unsigned sum = 0, scan = 0;
        if (threadIdx.x < DIGITS) {
            for (int i = 0; i < PARTS; ++i) sum += total[i][digit];
            scan = sum;
            for (int step = 1; step < 32; step *= 2) {
                const unsigned other = __shfl_up_sync(0xffffffffu, scan, step);
                if (lane >= step) scan += other;
            }
            if (lane == 31) warp_totals[digit / 32] = scan;
        }
        __syncthreads();
        unsigned items = 0;
        for (int i = 0; i < DIGITS / 32; ++i) items += warp_totals[i];
        if (threadIdx.x < DIGITS) {
            unsigned place = scan - sum;
            for (int i = 0; i < digit / 32; ++i) place += warp_totals[i];
            for (int i = 0; i < PARTS; ++i) place += before[i][digit];
            for (int warp = 0; warp < WARPS; ++warp) {
                const unsigned count = of_warp[warp][digit];
                of_warp[warp][digit] = place;
                place += count;
            }
        }
        __syncthreads();
        return items;
    }

    // The place of this lane's item; the lanes of a warp hold 32 items that follow one another. A lane that has none
    // passes false and gets nothing of use.
    __device__ unsigned take(unsigned digit, bool valid) {
        unsigned* mine = of_warp[threadIdx.x / 32];
        const unsigned peers = __match_any_sync(0xffffffffu, valid ? digit : DIGITS);
        const unsigned rank = __popc(peers & ((1u << (threadIdx.x & 31)) - 1));
        const unsigned place = valid ? mine[digit] + rank : 0;
        __syncwarp();
        if (valid && rank == 0) mine[digit] += __popc(peers);
        __syncwarp();
        return place;
    }
};

// The items of one of `warps` warps: whole steps of 32, but for the last.
struct WarpRun {
    unsigned begin, end;

    __device__ WarpRun(unsigned items, unsigned warp, unsigned warps) {
        const unsigned size = length(items, warps);
        begin = min(static_cast<unsigned long long>(items), static_cast<unsigned long long>(warp) * size);
        end = min(static_cast<unsigned long long>(items), static_cast<unsigned long long>(begin) + size);
    }

    __device__ static unsigned length(unsigned items, unsigned warps) {
        return ((items + warps - 1) / warps + 31) / 32 * 32;
    }
};
