// What the blocks of the look-ahead kernel show each other, and what the threads of one share.
#pragma once
#include "grid.cuh"
#include "warp.cuh"

constexpr int THREADS = 512, WARPS = THREADS / 32;
constexpr u32 MOST_BLOCKS = 256;
constexpr u32 BOARD = 768;     // offers in a round, at most
constexpr u32 OFFERS = 128;    // of one block, at most
constexpr u32 SINGLES = 8;     // a tile with more points above the threshold offers its best, and a blocker
constexpr u32 SHARE = 4;       // candidates of one block that another tests
constexpr u32 SHARES = OFFERS / SHARE;
constexpr u32 NEAR = 64;       // samples near a group that are listed; with more, all of its tiles are visited
constexpr u32 PENDING = 4096;  // samples drawn ahead of their turn, about
constexpr Rank ONE_KEY = 1ull << 32;  // the step from one key to the next

// How the threshold descends: by a model of the rounds (benchmarks/NOTES.md). What is sampled does not depend on it.
constexpr u32 TARGET = 320;          // offers that it aims for
constexpr float MOST_GROWTH = 1.5f;  // of a step: ranks lie the denser the lower they are
constexpr u32 LEAST_STEP = 12;       // a step is at least this part of the way from the best rank
constexpr float RETREAT = 0.85f;     // after too many offers: of the way that should have left TARGET

// What a block shows the others: a candidate, which is a point, or a blocker: the box of points that might be ahead
// of a candidate, and the highest rank among them. Each of the three is a `Letter`.
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

struct Cloud {
    const float *x, *y, *z;
    Key* keys;
    const u64* items;  // the row in the lower half
    const float* boxes;
    Key* tile_keys;
    u32 tiles;
    float* group_boxes;
    u32 groups, group_tiles;  // runs of at most 32 tiles, about equally many for each warp

    // `points`: at least 1.
    __device__ Cloud(u32 points, const float* xyz, Key* keys, const u64* items, const float* boxes, Key* tile_keys,
                     float* group_boxes)
        : keys(keys), items(items), boxes(boxes), tile_keys(tile_keys), group_boxes(group_boxes) {
        tiles = (points + 31) / 32;
        x = xyz;
        y = x + 32 * (size_t)tiles;
        z = y + 32 * (size_t)tiles;
        const u32 warps = gridDim.x * WARPS, turns = (tiles + 32 * warps - 1) / (32 * warps);
        group_tiles = (tiles + turns * warps - 1) / (turns * warps);
        groups = (tiles + group_tiles - 1) / group_tiles;
    }
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
    // Tiles to visit, each with the warp that has queued its group, and the samples near that group. By parity of the
    // turn: one warp may queue while another still visits.
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

// The same object by an address that the compiler cannot see through. Otherwise, on devices with clusters, it looks
// up the block's place in its cluster again for nearly every access, which takes a fifth of a round.
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
