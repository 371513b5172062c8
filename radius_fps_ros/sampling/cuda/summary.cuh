// What a run leaves for the host beside the indices.
#pragma once
#include "geometry.cuh"

struct Summary {
    u32 count;     // samples, the first included
    u32 coverage;  // bits of the largest key that they leave
    u32 rounds;
    u32 voxels;
    u64 updates;  // distances computed
};
