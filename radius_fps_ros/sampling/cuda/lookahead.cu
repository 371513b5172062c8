// Exact farthest point sampling, many samples a round.
//
// A point's key is the smallest squared distance to the samples so far; its rank orders points by key, then by row. Plain
// sampling takes the best rank, lowers keys, and repeats. But a point p may be sampled at once, ahead of its turn, when no
// point q ahead of it (of higher rank) would be lowered by it, that is, when d(p, q) >= key(q) for all of them:
//   - p's own key stays: a sample q drawn before p comes from those ahead, and d(p, q) >= key(q) >= key(p);
//   - those ahead never notice: p lowers only points behind it.
// So the set of samples, and the rank each was drawn with, are those of plain sampling, and sorting by rank gives its
// order. The best rank always qualifies, and in practice hundreds do in every round.
//
// A round: blocks apply the last samples to their tiles of 32 points (a sample that cannot come nearer to a tile's box than
// the tile's largest key changes nothing there and is skipped), and offer the points ranked above a threshold as
// candidates. All read all offers; each block tests its own candidates, and tells the others which are samples.
#include "grid.cuh"
#include "summary.cuh"
#include "warp.cuh"

constexpr int THREADS = 512, WARPS = THREADS / 32;
constexpr u32 MOST_BLOCKS = 256;
constexpr u32 BOARD = 768;     // offers in a round, at most
constexpr u32 TARGET = 256;    // and as many as the threshold aims for
constexpr u32 OFFERS = 128;    // of one block, at most
constexpr u32 SINGLES = 8;     // a tile with more points above the threshold offers its best, and a blocker
constexpr u32 SHARE = 4;       // candidates of one block that another tests
constexpr u32 SHARES = OFFERS / SHARE;
constexpr u32 NEAR = 64;       // samples near a group that are listed; with more, all of its tiles are visited
constexpr u32 PENDING = 4096;  // samples drawn ahead of their turn, about
constexpr Rank ONE_KEY = 1ull << 32;  // the step from one key to the next

// What a block shows the others: a candidate, which is a point, or a blocker: the box of points that might be ahead of a
// candidate, and the highest rank among them. Each of the three is a `Letter`.
struct Offer {
    uint4 low;
    uint4 rank;
    uint4 high;  // of a blocker; a candidate's box ends where it begins
};

// The offers of a round: candidates from the front, blockers from the back.
struct Board {
    float low_x[BOARD], low_y[BOARD], low_z[BOARD], high_x[BOARD], high_y[BOARD], high_z[BOARD];
    Rank rank[BOARD];

    __device__ Point point(u32 i) const { return {low_x[i], low_y[i], low_z[i]}; }
    __device__ Box box(u32 i) const { return {point(i), {high_x[i], high_y[i], high_z[i]}}; }
    __device__ void put(u32 i, const Box& box, Rank r) {
        low_x[i] = box.low.x;
        low_y[i] = box.low.y;
        low_z[i] = box.low.z;
        high_x[i] = box.high.x;
        high_y[i] = box.high.y;
        high_z[i] = box.high.z;
        rank[i] = r;
    }
};

// A round that drew samples. All of them up to `end` rank above `floor`; all of it and later rank at most `top`.
struct Round {
    Rank top, floor;
    u32 end, unused;
};

struct Cloud {
    const float *x, *y, *z;
    Key* keys;
    const u64* items;  // the row in the lower half
    const float* boxes;
    Key* tile_keys;
    u32 tiles;
    float* group_boxes;
    u32 groups, group_tiles;  // runs of at most 32 tiles

    __device__ Point point(size_t i) const { return {x[i], y[i], z[i]}; }
    __device__ u32 row(size_t i) const { return (u32)items[i]; }
    __device__ Box tile_box(u32 tile) const { return box(boxes, tile, tiles); }
    __device__ Box group_box(u32 group) const { return box(group_boxes, group, groups); }
    __device__ static Box box(const float* boxes, u32 i, size_t stride) {
        return {{boxes[i], boxes[stride + i], boxes[2 * stride + i]},
                {boxes[3 * stride + i], boxes[4 * stride + i], boxes[5 * stride + i]}};
    }
};

// What the blocks tell of themselves, added up.
struct Tally {
    u32 counts;           // candidates and, in the upper half, blockers
    u32 most_candidates;  // of one block
    u32 too_many;         // not 0 when a block had more offers than room
    Rank top;             // of all points

    __device__ u32 candidates() const { return counts & 0xffff; }
    __device__ u32 entries() const { return candidates() + (counts >> 16); }
    // Where entry i, counted through candidates and blockers, is on the board.
    __device__ u32 place(u32 i) const { return i < candidates() ? i : BOARD - 1 - (i - candidates()); }
};

// What the threads of a block share.
struct State {
    Board board;
    float4 samples[BOARD];  // of the last round
    u32 sample_count;
    // Tiles to visit, each with the warp that has queued its group, and the samples near that group. By parity of the turn:
    // one warp may queue while another still visits.
    u32 queue[2][THREADS], queued[3];
    unsigned short near_samples[2][WARPS][NEAR], near_count[2][WARPS];
    u32 offered, blocked;  // by this block
    Rank warp_tops[WARPS];
    Tally tallies[MOST_BLOCKS / 32];
    unsigned short first_candidate[MOST_BLOCKS], candidate_count[MOST_BLOCKS], first_blocker[MOST_BLOCKS];  // by block
    unsigned short source[BOARD];  // of a candidate: its slot in `offers`
    u32 unsafe[SHARES];            // of the candidates that this block tests

    __device__ Point sample(u32 i) const { return {samples[i].x, samples[i].y, samples[i].z}; }
};

// The same object by an address that the compiler cannot see through. Otherwise, on devices with clusters, it looks up the
// block's place in its cluster again for nearly every access, which takes a fifth of a round.
__device__ __forceinline__ State& opaque(State& shared) {
    u32 address = (u32)__cvta_generic_to_shared(&shared);
    asm volatile("" : "+r"(address));
    return *(State*)__cvta_shared_to_generic(address);
}

__device__ __forceinline__ Letter letter_of(Point p) {
    return {__float_as_uint(p.x), __float_as_uint(p.y), __float_as_uint(p.z)};
}
__device__ __forceinline__ Point point_of(Letter letter) {
    return {__uint_as_float(letter.a), __uint_as_float(letter.b), __uint_as_float(letter.c)};
}

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

// Lowers the tile's keys by the samples and offers its candidates. Returns a bound of its ranks: the highest one if that is
// above the threshold.
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

// Updates the block's tiles and offers their candidates. Returns a bound of the ranks of the points that this warp has seen:
// the highest one if that is above the threshold. `turn` counts on from call to call.
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
    const u32 pieces = (tally.entries() + 31) / 32, teams = max(WARPS / pieces, 1u), team = warp / min(pieces, (u32)WARPS);
    if (team < teams)
        for (u32 piece = warp % min(pieces, (u32)WARPS); piece < pieces; piece += WARPS) {
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
                    lowers |= (rank > s.board.rank[candidate] && squared_distance(s.board.point(candidate), box) < key) << c;
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

// Never 0, and never so large that sums of steps overflow.
__device__ __forceinline__ Rank scaled(Rank step, float factor) {
    return (Rank)fminf(fmaxf((float)step * factor, 1.0f), 4e18f);
}

// How many leading rounds have drawn only samples that no later one can precede. `from` are known to be such.
__device__ u32 closed_rounds(const Round* history, u32 from, u32 rounds, Rank highest) {
    while (true) {
        const u32 i = from + threadIdx.x;
        const int count = __syncthreads_count(i < rounds && __ldcg(&history[i].floor) >= highest);
        from += count;
        if (count < THREADS) return from;
    }
}

__device__ u32 count_above(const Rank* drawn, u32 begin, u32 end, Rank rank) {
    u32 count = 0;
    for (u32 first = begin; first < end; first += THREADS) {
        const u32 i = first + threadIdx.x;
        count += __syncthreads_count(i < end && __ldcg(&drawn[i]) > rank);
    }
    return count;
}

// Each warp places samples: a sample's position is the number of higher ranks. Only rounds that overlap its own in rank
// have to be counted through.
__device__ void write_in_order(const Rank* drawn, u32 total, const Round* history, u32 rounds, u32 n_samples,
                               long long* indices, u32* coverage, Rank highest) {
    const int lane = lane_id();
    for (u32 i = blockIdx.x * WARPS + threadIdx.x / 32; i < total; i += gridDim.x * WARPS) {
        const Rank rank = drawn[i];
        u32 ahead = 0, alive = 0;  // rounds whose samples all precede it; rounds that are not all behind it
        for (u32 r = lane; r < rounds; r += 32) {
            ahead += history[r].floor >= rank;
            alive += history[r].top >= rank;
        }
        ahead = warp_sum(ahead);
        alive = warp_sum(alive);
        const u32 begin = ahead ? history[ahead - 1].end : 0, end = alive ? history[alive - 1].end : 0;
        u32 higher = 0;
        for (u32 j = begin + lane; j < end; j += 32) higher += drawn[j] > rank;
        const u32 position = 1 + begin + warp_sum(higher);
        if (lane == 0 && position < n_samples) indices[position] = rank_row(rank);
        if (lane == 0 && position == n_samples) *coverage = max(rank_key(rank), rank_key(highest));
    }
}

// Arrays are those that `order` wrote. `offers`: OFFERS for each block, `count_mail`: 2, and `sample_mail`: SHARES words;
// these and `arrivals` are 0 at the start. `drawn` and `history`: as long as the most samples drawn.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    lookahead(const float* __restrict__ points, u32 start, u32 n_samples, const float* __restrict__ xyz, Key* keys,
              const u64* __restrict__ items, const float* __restrict__ boxes, Key* tile_keys, u32 tiles,
              float* group_boxes, u32 groups, u32 group_tiles, Offer* offers, uint4* count_mail, u64* sample_mail,
              u32* arrivals, Rank* drawn, Round* history, long long* indices, Summary* summary) {
    const size_t stride = 32 * (size_t)tiles;
    const Cloud cloud = {xyz,   xyz + stride, xyz + 2 * stride, keys,   items,      boxes,
                         tile_keys, tiles,    group_boxes,      groups, group_tiles};
    Offer* const own_offers = offers + blockIdx.x * OFFERS;
    __shared__ State state;
    State& s = opaque(state);

    find_group_boxes(cloud);
    if (threadIdx.x < SHARES) s.unsafe[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        const Point p = load_point(points, start);
        s.samples[0] = make_float4(p.x, p.y, p.z, 0.0f);
        s.sample_count = 1;
        s.queued[0] = s.offered = s.blocked = 0;
        if (blockIdx.x == 0) indices[0] = start;
    }
    __syncthreads();

    Rank threshold = top_rank(INFINITE_KEY);
    Rank step = ONE_KEY << 20;  // the threshold's next descent
    Rank floor = ~0ull;         // the lowest threshold so far
    Rank highest;
    u64 updates = 0;
    u32 total = 0, rounds = 0, expected = 0, round = 0, turn = 0;
    u32 closed = 0, settled = 0;  // leading rounds that no later sample can precede, and their samples
    while (true) {
        ++round;
        const Rank seen = sweep(s, cloud, threshold, own_offers, round, turn, updates);
        const Tally tally = exchange_counts(s, seen, count_mail, round);
        const u32 entries = tally.entries();
        const bool too_many = tally.too_many || entries > BOARD;
        highest = tally.top;
        if (rank_key(highest) == 0) break;
        bool hold = false;  // draw what is above the threshold before it descends
        if (total + 1 >= n_samples || total - settled > PENDING) {
            grid_barrier(arrivals, expected);  // `drawn` and `history` can be read
            closed = closed_rounds(history, closed, rounds, highest);
            settled = closed ? __ldcg(&history[closed - 1].end) : 0;
            if (total + 1 >= n_samples && settled + count_above(drawn, settled, total, highest) + 1 >= n_samples) break;
            hold = total + 1 >= n_samples || total - settled > PENDING;
        }
        if (entries == 0 || too_many) {
            step = too_many ? scaled(highest - threshold, fminf(TARGET / 2.0f / entries, 0.5f)) : max(step, ONE_KEY);
            threshold = highest > top_rank(0) + step ? highest - step : top_rank(0);
            continue;
        }
        read_offers(s, tally, offers, round);
        test_candidates(s, tally, sample_mail, round);
        receive_samples(s, tally, sample_mail, round, drawn + total);
        const u32 drew = s.sample_count;
        floor = min(floor, threshold);
        if (blockIdx.x == 0 && threadIdx.x == 0) history[rounds] = {highest, floor, total + drew, 0};
        total += drew;
        ++rounds;
        step = scaled(step, fminf((float)TARGET / entries, 2.0f));
        if (!hold) threshold = threshold > top_rank(0) + step ? threshold - step : top_rank(0);
    }

    grid_barrier(arrivals, expected);
    write_in_order(drawn, total, history, rounds, n_samples, indices, &summary->coverage, highest);
    if (lane_id() == 0 && updates) atomicAdd(&summary->updates, 32 * updates);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        summary->count = min(n_samples, total + 1);
        summary->rounds = round;
        summary->voxels = tiles;
        if (total + 1 <= n_samples) summary->coverage = rank_key(highest);
    }
}
