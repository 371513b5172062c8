// How the blocks agree on the samples of a round.
#pragma once
#include "lookahead_state.cuh"

// Sum over the lanes up to this one.
__device__ __forceinline__ u32 warp_scan(u32 v) {
    for (int step = 1; step < 32; step *= 2) {
        const u32 other = __shfl_up_sync(ALL, v, step);
        if (lane_id() >= step) v += other;
    }
    return v;
}

// Tells the other blocks how much this one offers, and learns the same of them. `highest` is of this warp's points.
__device__ Tally exchange_counts(State& s, Rank highest, uint4* count_mail, u32 round) {
    constexpr u32 TOO_MANY = 1u << 31;
    const u32 t = threadIdx.x, lane = lane_id(), warp = t / 32, readers = (gridDim.x + 31) / 32;
    count_mail += round % 2 * gridDim.x;  // a block may be a round ahead
    if (lane == 0) s.warp_tops[warp] = highest;
    __syncthreads();
    if (warp == 0) {
        highest = warp_max(lane < WARPS ? s.warp_tops[lane] : 0);
        if (lane == 0) {
            const u32 counts = min(s.offered, OFFERS) | min(s.blocked, OFFERS) << 16;
            const u32 flag = s.offered + s.blocked > OFFERS ? TOO_MANY : 0;
            send(&count_mail[blockIdx.x], round, {counts | flag, rank_key(highest), (u32)highest});
            s.offered = s.blocked = s.sample_count = 0;
        }
    }
    u32 mine = 0, scan = 0;
    if (warp < readers) {
        Letter letter = {0, 0, 0};
        if (t < gridDim.x) letter = receive(&count_mail[t], round);
        mine = letter.a & ~TOO_MANY;
        scan = warp_scan(mine);
        const u32 most = warp_max(mine & 0xffff), too_many = __ballot_sync(ALL, letter.a & TOO_MANY);
        highest = warp_max((Rank)letter.b << 32 | letter.c);
        if (lane == 31) s.tallies[warp] = {scan, most, too_many, highest};
    }
    __syncthreads();
    Tally all = {0, 0, 0, 0};
    u32 before = 0;
    for (u32 w = 0; w < readers; ++w) {
        const Tally& part = s.tallies[w];
        if (w < warp) before += part.counts;
        all = {all.counts + part.counts, max(all.most_candidates, part.most_candidates), all.too_many | part.too_many,
               max(all.top, part.top)};
    }
    if (t < gridDim.x) {
        before += scan - mine;
        s.first_candidate[t] = before & 0xffff;
        s.candidate_count[t] = mine & 0xffff;
        s.first_blocker[t] = before >> 16;
    }
    __syncthreads();
    return all;
}

// The block that item i came from; `first` tells each block's first item.
__device__ u32 find_block(const unsigned short* first, u32 i) {
    u32 low = 0, high = gridDim.x;  // it is one of low to high - 1
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        (first[middle] <= i ? low : high) = middle;
    }
    return low;
}

__device__ void read_offers(State& s, const Tally& tally, const Offer* offers, u32 round) {
    for (u32 i = threadIdx.x; i < tally.entries(); i += THREADS) {
        const bool candidate = i < tally.candidates();
        const u32 k = candidate ? i : i - tally.candidates();
        const unsigned short* first = candidate ? s.first_candidate : s.first_blocker;
        const u32 block = find_block(first, k), slot = k - first[block];
        const u32 source = block * OFFERS + (candidate ? slot : OFFERS - 1 - slot);
        if (candidate) s.source[i] = source;
        const Offer& offer = offers[source];
        Letter rank, low;
        bool complete;
        do {
            complete = try_receive(&offer.rank, round, rank);
            complete &= try_receive(&offer.low, round, low);
        } while (!complete);
        const Letter high = candidate ? low : receive(&offer.high, round);
        s.board.put(tally.place(i), {point_of(low), point_of(high)}, (Rank)rank.a << 32 | rank.b);
    }
    __syncthreads();
}

// Candidates are tested in shares: share k of block b by block b + k, so that a block with many has help.
struct Share {
    u32 block, first, count;
    __device__ Share(const State& s, u32 k) {
        int b = (int)blockIdx.x - (int)k;
        while (b < 0) b += gridDim.x;
        block = b;
        const u32 all = s.candidate_count[block];
        first = s.first_candidate[block] + k * SHARE;
        count = all > k * SHARE ? min(all - k * SHARE, SHARE) : 0;
    }
};

// Marks those candidates of this block's shares that would lower a point ahead of them, and tells all blocks.
__device__ void test_candidates(State& s, const Tally& tally, u64* sample_mail, u32 round) {
    const u32 lane = lane_id(), warp = threadIdx.x / 32;
    const Share own(s, lane);  // each lane knows one, SHARES of them
    const u32 shares = __ballot_sync(ALL, own.count > 0);
    // Warps work side by side on pieces of the board, and on several shares where the board is short.
    const u32 pieces = (tally.entries() + 31) / 32, members = min(pieces, (u32)WARPS);
    const u32 teams = WARPS / members, team = warp / members;
    if (team < teams)
        for (u32 piece = warp % members; piece < pieces; piece += WARPS) {
            const u32 i = piece * 32 + lane;
            const bool valid = i < tally.entries();
            const u32 place = valid ? tally.place(i) : 0;
            const Box box = s.board.box(place);
            const Rank rank = valid ? s.board.rank[place] : 0;
            const Key key = rank_key(rank);
            u32 left = shares;
            for (u32 turn = 0; left; ++turn) {
                const int k = pop_bit(left);
                if (turn % teams != team) continue;
                const u32 first = __shfl_sync(ALL, own.first, k), count = __shfl_sync(ALL, own.count, k);
                u32 lowers = 0;
#pragma unroll
                for (u32 c = 0; c < SHARE; ++c) {
                    const u32 candidate = c < count ? first + c : first;
                    const bool behind = s.board.rank[candidate] < rank;
                    lowers |= (behind && squared_distance(s.board.point(candidate), box) < key) << c;
                }
                lowers = warp_or(lowers);
                if (lane == 0 && lowers) atomicOr(&s.unsafe[k], lowers);
            }
        }
    __syncthreads();
    if (warp == 0 && own.count) {
        send(&sample_mail[own.block * SHARES + lane], round, ((1u << own.count) - 1) & ~s.unsafe[lane]);
        s.unsafe[lane] = 0;
    }
}

// Learns which candidates are samples, and puts those on record.
__device__ void receive_samples(State& s, const Tally& tally, const u64* sample_mail, u32 round, Rank* drawn) {
    for (u32 first = threadIdx.x & ~31u; first < tally.candidates(); first += THREADS) {
        const u32 i = first + lane_id();
        bool safe = false;
        if (i < tally.candidates()) {
            const u32 block = s.source[i] / OFFERS, slot = s.source[i] % OFFERS;
            safe = receive(&sample_mail[block * SHARES + slot / SHARE], round) >> slot % SHARE & 1;
        }
        const u32 all = __ballot_sync(ALL, safe);
        u32 place = 0;
        if (lane_id() == 0) place = atomicAdd(&s.sample_count, __popc(all));
        place = __shfl_sync(ALL, place, 0) + __popc(all & ((1u << lane_id()) - 1));
        if (safe) {
            const Point p = s.board.point(i);
            s.samples[place] = make_float4(p.x, p.y, p.z, 0.0f);
            if (blockIdx.x == 0) drawn[place] = s.board.rank[i];
        }
    }
    __syncthreads();
}
