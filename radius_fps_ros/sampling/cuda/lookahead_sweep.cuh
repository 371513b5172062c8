// One pass of a block over its tiles: lower their keys by the last samples, offer the candidates of the next.
#pragma once
#include "lookahead_state.cuh"

// Groups are dealt out so that neighbours go to different blocks: a busy region is shared.
__device__ __forceinline__ u32 group_of(u32 turn) {
    return (turn * WARPS + threadIdx.x / 32) * gridDim.x + blockIdx.x;
}

__device__ void find_group_boxes(const Cloud& cloud) {
    for (u32 turn = 0; group_of(turn) < cloud.groups; ++turn) {
        const u32 group = group_of(turn), tile = group * cloud.group_tiles + lane_id();
        const bool valid = lane_id() < cloud.group_tiles && tile < cloud.tiles;
        const Box box = warp_union(valid ? cloud.tile_box(tile) : empty_box());
        if (lane_id() == 0) {
            const float bounds[6] = {box.low.x, box.low.y, box.low.z, box.high.x, box.high.y, box.high.z};
            for (int i = 0; i < 6; ++i) cloud.group_boxes[i * (size_t)cloud.groups + group] = bounds[i];
        }
    }
}

// A bound of the ranks of points that are not offered, from the largest key among them.
__device__ __forceinline__ Rank quiet_top(Key key, Rank threshold) {
    return key ? min(top_rank(key), threshold) : 0;
}

// Lists the samples that can reach the group. Returns how many there are; no more than NEAR of them are listed.
__device__ u32 list_near_samples(const State& s, const Box& group_box, Key largest, unsigned short* list) {
    constexpr int BATCH = 4;  // tests side by side hide each other's latency
    const u32 lane = lane_id();
    u32 count = 0;
    for (u32 first = 0; first < s.sample_count; first += 32 * BATCH) {
        u32 near[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            const u32 i = first + 32 * k + lane;
            const bool valid = i < s.sample_count;
            near[k] = __ballot_sync(ALL, valid && squared_distance(s.sample(valid ? i : 0), group_box) < largest);
        }
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            if (near[k] == 0) continue;
            const u32 place = count + __popc(near[k] & ((1u << lane) - 1));
            if (near[k] >> lane & 1 && place < NEAR) list[place] = first + 32 * k + lane;
            count += __popc(near[k]);
        }
    }
    __syncwarp();
    return count;
}

// Queues those of a group's tiles that a sample can reach or that have a candidate. Returns a bound of the ranks in the
// others.
__device__ Rank queue_tiles(State& s, const Cloud& cloud, u32 group, Rank threshold, u32 turn) {
    const u32 lane = lane_id(), warp = threadIdx.x / 32, tile = group * cloud.group_tiles + lane;
    const bool valid = group < cloud.groups && lane < cloud.group_tiles && tile < cloud.tiles;
    const Box box = valid ? cloud.tile_box(tile) : empty_box();
    const Key key = valid ? cloud.tile_keys[tile] : 0;
    bool visit = key && key >= rank_key(threshold);
    if (group < cloud.groups) {
        unsigned short* list = s.near_samples[turn % 2][warp];
        const u32 count = list_near_samples(s, cloud.group_box(group), warp_max(key), list);
        if (lane == 0) s.near_count[turn % 2][warp] = count;
        if (cloud.group_tiles == 1 || count > NEAR)
            visit |= key && count;
        else
#pragma unroll 4
            for (u32 i = 0; i < count; ++i) visit |= squared_distance(s.sample(list[i]), box) < key;
    }
    const u32 all = __ballot_sync(ALL, visit);
    u32 place = 0;
    if (lane == 0 && all) place = atomicAdd(&s.queued[turn % 3], __popc(all));
    place = __shfl_sync(ALL, place, 0) + __popc(all & ((1u << lane) - 1));
    if (visit) s.queue[turn % 2][place] = tile * WARPS + warp;
    return visit ? 0 : quiet_top(key, threshold);
}

// Offers the tile's points that rank above the threshold. Returns the highest rank, 0 if none is above it.
__device__ Rank offer(State& s, Point p, Rank rank, Rank threshold, Offer* offers, u32 round) {
    const u32 lane = lane_id();
    const bool above = rank > threshold;
    const u32 all = __ballot_sync(ALL, above);
    if (all == 0) return 0;
    const Rank best = warp_max(rank);
    const bool singly = __popc(all) <= SINGLES;
    const bool candidate = singly ? above : rank == best;
    const u32 chosen = __ballot_sync(ALL, candidate);
    u32 slot = 0;
    if (lane == 0) slot = atomicAdd(&s.offered, __popc(chosen));
    slot = __shfl_sync(ALL, slot, 0) + __popc(chosen & ((1u << lane) - 1));
    if (candidate && slot < OFFERS) {
        send(&offers[slot].low, round, letter_of(p));
        send(&offers[slot].rank, round, {rank_key(rank), (u32)rank, 0});
    }
    if (!singly) {
        const bool rest = above && !candidate;
        const Box box = warp_union(rest ? box_of(p) : empty_box());
        const Rank second = warp_max(rest ? rank : 0);
        if (lane == 0) {
            slot = atomicAdd(&s.blocked, 1u);
            if (slot < OFFERS) {
                Offer& blocker = offers[OFFERS - 1 - slot];
                send(&blocker.low, round, letter_of(box.low));
                send(&blocker.rank, round, {rank_key(second), (u32)second, 0});
                send(&blocker.high, round, letter_of(box.high));
            }
        }
    }
    return best;
}

// A tile, one point a lane.
struct Tile {
    u32 number, warp;
    Box box;
    Key largest;
    Point point;
    Key key;

    __device__ void load(const Cloud& cloud, u32 item) {
        number = item / WARPS;
        warp = item % WARPS;
        box = cloud.tile_box(number);
        largest = cloud.tile_keys[number];
        point = cloud.point((size_t)number * 32 + lane_id());
        key = cloud.keys[(size_t)number * 32 + lane_id()];
    }
};

// Lowers the tile's keys by the samples and offers its candidates. Returns a bound of its ranks: the highest one if
// that is above the threshold.
__device__ Rank visit_tile(State& s, const Cloud& cloud, Tile& tile, Rank threshold, u32 turn, Offer* offers, u32 round,
                           u64& updates) {
    const u32 lane = lane_id();
    const unsigned short* list = s.near_samples[turn % 2][tile.warp];
    const u32 near = s.near_count[turn % 2][tile.warp];
    const bool listed = near <= NEAR;
    const u32 count = listed ? near : s.sample_count;
    u32 hits = 0;
    for (u32 first = 0; first < count; first += 32) {
        const bool valid = first + lane < count;
        const u32 place = valid ? first + lane : 0, i = listed ? list[place] : place;
        u32 left = __ballot_sync(ALL, valid && squared_distance(s.sample(i), tile.box) < tile.largest);
        hits += __popc(left);
        while (left) {  // two at a time, for their latency
            const int a = pop_bit(left), b = left ? pop_bit(left) : a;
            const Key key_a = squared_distance(tile.point, s.sample(__shfl_sync(ALL, i, a)));
            const Key key_b = squared_distance(tile.point, s.sample(__shfl_sync(ALL, i, b)));
            tile.key = min(tile.key, min(key_a, key_b));
        }
    }
    const size_t place = (size_t)tile.number * 32 + lane;
    if (hits) {
        updates += hits;
        cloud.keys[place] = tile.key;
        tile.largest = warp_max(tile.key);
        if (lane == 0) cloud.tile_keys[tile.number] = tile.largest;
    }
    Rank best = 0;
    if (tile.largest && tile.largest >= rank_key(threshold))
        best = offer(s, tile.point, make_rank(tile.key, cloud.row(place)), threshold, offers, round);
    return best ? best : quiet_top(tile.largest, threshold);
}

// Updates the block's tiles and offers their candidates. Returns a bound of the ranks of the points that this warp
// has seen: the highest one if that is above the threshold. `turn` counts on from call to call.
__device__ Rank sweep(State& s, const Cloud& cloud, Rank threshold, Offer* offers, u32 round, u32& turn, u64& updates) {
    Rank quiet = 0, seen = 0;
    for (u32 pass = 0; pass * WARPS * gridDim.x < cloud.groups; ++pass, ++turn) {
        quiet = max(quiet, queue_tiles(s, cloud, group_of(pass), threshold, turn));
        if (threadIdx.x == 0) s.queued[(turn + 1) % 3] = 0;
        __syncthreads();
        const u32 count = s.queued[turn % 3];
        const u32* items = s.queue[turn % 2];
        u32 next = threadIdx.x / 32;
        Tile tile, fetched;
        if (next < count) fetched.load(cloud, items[next]);
        while (next < count) {
            tile = fetched;
            next += WARPS;
            if (next < count) fetched.load(cloud, items[next]);  // arrives while this one is worked on
            seen = max(seen, visit_tile(s, cloud, tile, threshold, turn, offers, round, updates));
        }
    }
    return max(warp_max(quiet), seen);
}
