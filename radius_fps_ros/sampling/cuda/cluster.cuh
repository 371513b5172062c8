// Thread block clusters (compute capability 9.0): blocks on neighbouring multiprocessors that start together and write
// into each other's shared memory.
#pragma once
#include "geometry.cuh"

__device__ __forceinline__ u32 shared_address(const void* mine) { return (u32)__cvta_generic_to_shared(mine); }

// The same place in the shared memory of another block of the cluster.
__device__ __forceinline__ u32 in_block(u32 block, u32 address) {
    u32 r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(block));
    return r;
}

// For all threads of the cluster.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A barrier in shared memory that counts bytes that arrive. A phase ends when one thread has said how many to expect
// and they have come, in either order.
__device__ __forceinline__ void init_byte_barrier(u32 barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void expect_bytes(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits for a phase, 0 or 1 by turns. The hardware wakes the thread; the loop is for its time limit.
__device__ __forceinline__ void wait_for_bytes(u32 barrier, u32 phase) {
    u32 ended;
    do asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(ended)
            : "r"(barrier), "r"(phase)
            : "memory");
    while (!ended);
}

// Writes 16 bytes into a block of the cluster and counts them at that block's `barrier`. Nothing else of the writer has
// to be waited for, as a barrier of the whole cluster would.
__device__ __forceinline__ void send_16_bytes(u32 address, uint4 v, u32 barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
        "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
        : "memory");
}
