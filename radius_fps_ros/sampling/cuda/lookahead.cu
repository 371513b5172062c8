// Exact farthest point sampling, many samples a round.
//
// A point's key is the smallest squared distance to the samples so far; its rank orders points by key, then by row.
// Plain sampling takes the best rank, lowers keys, and repeats. But a point p may be sampled at once, ahead of its
// turn, when no point q ahead of it (of higher rank) would be lowered by it, that is, when d(p, q) >= key(q) for all
// of them:
//   - p's own key stays: a sample q drawn before p comes from those ahead, and d(p, q) >= key(q) >= key(p);
//   - those ahead never notice: p lowers only points behind it.
// So the set of samples, and the rank each was drawn with, are those of plain sampling, and sorting by rank gives its
// order. The best rank always qualifies, and in practice hundreds do in every round.
//
// A round: blocks apply the last samples to their tiles of 32 points (a sample that cannot come nearer to a tile's
// box than the tile's largest key changes nothing there and is skipped), and offer the points ranked above a
// threshold as candidates. All read all offers; each block tests its share of the candidates and tells the others
// which of them are samples.
#include "lookahead_exchange.cuh"
#include "lookahead_record.cuh"
#include "lookahead_sweep.cuh"
#include "start.cuh"
#include "summary.cuh"

// Never 0, and never so large that sums of steps overflow.
__device__ __forceinline__ Rank scaled(Rank step, float factor) {
    return (Rank)fminf(fmaxf((float)step * factor, 1.0f), 4e18f);
}

// Arrays are those that `order` wrote. `offers`: 2 * OFFERS for each block, `count_mail`: 2, and `sample_mail`:
// SHARES words; these, `arrivals` and the summary are 0 at the start. `drawn` and `history`: as long as the most samples
// drawn.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    lookahead(const float* __restrict__ points, u32 n, const u32* start_at, u32 start, u32 n_samples,
              const u32* __restrict__ usable, const float* __restrict__ xyz, Key* keys, const u64* __restrict__ items,
              const float* __restrict__ boxes, Key* tile_keys, float* group_boxes, Offer* offers, uint4* count_mail,
              u64* sample_mail, u32* arrivals, Rank* drawn, Round* history, long long* indices, Summary* summary) {
    if (!find_start(points, n, start_at, start)) return;
    const Cloud cloud(*usable, xyz, keys, items, boxes, tile_keys, group_boxes);
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
        // Two sets by turns: a block may be a round ahead and offer again while another still reads.
        Offer* const all_offers = offers + round % 2 * gridDim.x * OFFERS;
        const Rank seen = sweep(s, cloud, threshold, all_offers + blockIdx.x * OFFERS, round, turn, updates);
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
            const float kept = RETREAT * fminf((float)TARGET / entries, 1.0f);
            step = too_many ? scaled(highest - threshold, kept) : max(step, ONE_KEY);
            threshold = highest > top_rank(0) + step ? highest - step : top_rank(0);
            continue;
        }
        read_offers(s, tally, all_offers, round);
        test_candidates(s, tally, sample_mail, round);
        receive_samples(s, tally, sample_mail, round, drawn + total);
        const u32 drew = s.sample_count;
        floor = min(floor, threshold);
        if (blockIdx.x == 0 && threadIdx.x == 0) history[rounds] = {highest, floor, total + drew, 0};
        total += drew;
        ++rounds;
        // However many were offered: a step that has become too small would take many rounds to grow again.
        step = max(scaled(step, fminf((float)TARGET / entries, MOST_GROWTH)), (highest - threshold) / LEAST_STEP);
        if (entries > 2 * TARGET) hold = true;
        if (!hold) threshold = threshold > top_rank(0) + step ? threshold - step : top_rank(0);
    }

    grid_barrier(arrivals, expected);
    write_in_order(drawn, total, history, rounds, n_samples, indices, &summary->coverage, highest);
    if (lane_id() == 0 && updates) atomicAdd(&summary->updates, 32 * updates);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        summary->count = min(n_samples, total + 1);
        summary->rounds = round;
        summary->voxels = cloud.tiles;
        if (total + 1 <= n_samples) summary->coverage = rank_key(highest);
    }
}
