// RadiusFPS on the GPU (Yu et al., arXiv 2606.06255, 2026): points sorted by spherical voxels; each voxel keeps the
// best rank of its points. A new sample is held against all voxels; a warp updates those that it can reach and finds
// their new best in the same pass. One persistent launch; blocks exchange their best after every sample.
//
// The bound is the distance to the voxel's tight box, which is proven, and not that to clamped spherical coordinates,
// which can exceed the true distance.
#include "grid.cuh"
#include "start.cuh"
#include "summary.cuh"
#include "warp.cuh"

constexpr int THREADS = 512, WARPS = THREADS / 32;
constexpr u32 WINDOW = 64;  // places: voxels end where a window does, so none has more points

struct Voxels {
    u32* begin;
    u32* size;
    float* boxes;  // low x, y, z, high x, y, z
    Rank* ranks;
    u32 capacity;  // of one warp
};

// Voxel k belongs to warp k modulo the number of warps: neighbours are worked on side by side. A warp's own are
// adjacent in memory.
__device__ u32 voxel_place(const Voxels& voxels, u32 voxel) {
    const u32 warps = WARPS * gridDim.x;
    return voxel % warps * voxels.capacity + voxel / warps;
}

// Cuts the sorted points into voxels: where the code changes, and at the end of a window.
__device__ void cut_voxels(const u64* __restrict__ items, const float* __restrict__ xyz, const Key* keys,
                           size_t stride, u32 n, u32 warp, const Voxels& voxels, u32* voxel_count) {
    const int lane = lane_id();
    for (u32 window = warp; window * (u64)WINDOW < n; window += WARPS * gridDim.x) {
        u64 starts = 0;
        u32 filled = 0;
        for (int half = 0; half < 2; ++half) {
            const u32 i = window * WINDOW + half * 32 + lane;
            const u32 code = i < n ? (u32)(items[i] >> 32) : 0;
            const u32 before = i < n && i % WINDOW ? (u32)(items[i - 1] >> 32) : ~code;
            starts |= (u64)__ballot_sync(ALL, i < n && code != before) << (32 * half);
            filled += __popc(__ballot_sync(ALL, i < n));
        }
        u32 voxel = 0;
        if (lane == 0) voxel = atomicAdd(voxel_count, __popcll(starts));
        voxel = __shfl_sync(ALL, voxel, 0);
        while (starts) {
            const u32 first = __ffsll(starts) - 1;
            starts &= starts - 1;
            const u32 size = (starts ? __ffsll(starts) - 1 : filled) - first;
            const u32 begin = window * WINDOW + first, place = voxel_place(voxels, voxel++);
            Box box = empty_box();
            Rank best = 0;
            for (u32 k = lane; k < size; k += 32) {
                const size_t i = begin + k;
                best = max(best, make_rank(keys[i], (u32)items[i]));
                const Point p = {xyz[i], xyz[stride + i], xyz[2 * stride + i]};
                box.low = {smaller(box.low.x, p.x), smaller(box.low.y, p.y), smaller(box.low.z, p.z)};
                box.high = {larger(box.high.x, p.x), larger(box.high.y, p.y), larger(box.high.z, p.z)};
            }
            box = warp_union(box);
            best = warp_max(best);
            if (lane == 0) {
                const size_t all = (size_t)voxels.capacity * WARPS * gridDim.x;
                const float bounds[6] = {box.low.x, box.low.y, box.low.z, box.high.x, box.high.y, box.high.z};
                for (int k = 0; k < 6; ++k) voxels.boxes[k * all + place] = bounds[k];
                voxels.begin[place] = begin;
                voxels.size[place] = size;
                voxels.ranks[place] = best;
            }
        }
    }
}

// Lowers the keys of a voxel and returns the best rank left.
__device__ Rank update_voxel(const float* __restrict__ xyz, size_t stride, Key* keys, const u64* __restrict__ items,
                            u32 begin, u32 size, Point sample) {
    Rank best = 0;
    for (u32 k = lane_id(); k < size; k += 32) {
        const size_t i = begin + k;
        const Key key = min(keys[i], squared_distance(Point{xyz[i], xyz[stride + i], xyz[2 * stride + i]}, sample));
        keys[i] = key;
        best = max(best, make_rank(key, (u32)items[i]));
    }
    return warp_max(best);
}

// Arrays are those that `order` wrote. `best_mail`: 2 for each block, 0 at the start, as are `voxel_count`, `arrivals`
// and the summary.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    radius(const float* __restrict__ points, u32 n, const u32* start_at, u32 start, u32 n_samples,
           const u32* __restrict__ usable, const float* __restrict__ xyz, Key* keys, const u64* __restrict__ items,
           u32* voxel_begin, u32* voxel_size, float* voxel_boxes, Rank* voxel_ranks, u32 capacity, u32* voxel_count,
           u32* arrivals, uint4* best_mail, long long* indices, Summary* summary) {
    if (!find_start(points, n, start_at, start)) return;
    __shared__ Rank warp_best[WARPS];
    __shared__ Rank best[2];  // of all blocks, by parity of the sample
    const int lane = lane_id(), t = threadIdx.x;
    const u32 warp = t / 32 * gridDim.x + blockIdx.x, warps = WARPS * gridDim.x;
    const u32 finite = *usable;
    const size_t stride = 32 * (size_t)((finite + 31) / 32);
    const Voxels voxels = {voxel_begin, voxel_size, voxel_boxes, voxel_ranks, capacity};
    const size_t all = (size_t)capacity * warps;

    u32 expected = 0;
    cut_voxels(items, xyz, keys, stride, finite, warp, voxels, voxel_count);
    if (t < 2) best[t] = 0;
    grid_barrier(arrivals, expected);
    const u32 total = __ldcg(voxel_count);
    const u32 mine = warp < total ? (total - warp + warps - 1) / warps : 0;

    u64 updates = 0;
    Rank highest;
    u32 row = start, count = 0;
    while (true) {
        if (blockIdx.x == 0 && t == 0) indices[count] = row;
        ++count;
        const Point sample = load_point(points, row);
        Rank top = 0;
        for (u32 first = 0; first < mine; first += 32) {
            const u32 place = warp * capacity + first + lane;
            const bool valid = first + lane < mine;
            Rank rank = 0;
            u32 begin = 0, size = 0;
            bool near = false;
            if (valid) {
                const float* b = voxel_boxes + place;
                const Box box = {{b[0], b[all], b[2 * all]}, {b[3 * all], b[4 * all], b[5 * all]}};
                rank = voxel_ranks[place];
                begin = voxel_begin[place];
                size = voxel_size[place];
                near = squared_distance(sample, box) < rank_key(rank);
            }
            for (u32 left = __ballot_sync(ALL, near); left;) {
                const int i = pop_bit(left);
                const u32 points_in_it = __shfl_sync(ALL, size, i);
                const Rank left_best =
                    update_voxel(xyz, stride, keys, items, __shfl_sync(ALL, begin, i), points_in_it, sample);
                updates += points_in_it;
                if (lane == i) rank = left_best;
            }
            if (near) voxel_ranks[place] = rank;
            top = max(top, rank);
        }
        top = warp_max(top);
        if (lane == 0) warp_best[t / 32] = top;
        __syncthreads();
        if (t < 32) {
            top = warp_max(t < WARPS ? warp_best[t] : 0);
            if (t == 0) {
                send(&best_mail[count % 2 * gridDim.x + blockIdx.x], count, {rank_key(top), (u32)top, 0});
                best[(count + 1) % 2] = 0;
            }
        }
        if (t < (gridDim.x + 31) / 32 * 32) {
            top = 0;
            if (t < gridDim.x) {
                const Letter letter = receive(&best_mail[count % 2 * gridDim.x + t], count);
                top = (Rank)letter.a << 32 | letter.b;
            }
            top = warp_max(top);
            if (lane == 0) atomicMax(&best[count % 2], top);
        }
        __syncthreads();
        highest = best[count % 2];
        if (count == n_samples || rank_key(highest) == 0) break;
        row = rank_row(highest);
    }
    if (lane == 0 && updates) atomicAdd(&summary->updates, updates);
    if (blockIdx.x == 0 && t == 0) {
        summary->count = count;
        summary->coverage = rank_key(highest);
        summary->rounds = count;
        summary->voxels = total;
    }
}
