// How the blocks of a cooperative launch talk to each other. Needs no toolkit header.
#pragma once
#include "geometry.cuh"

// Mail: words that carry the number of the round they belong to, so that the receiver sees whether they are those
// that it waits for; no barrier, no fence. It rests on each being written and read at once. Rounds count from 1;
// words are 0 when the kernel starts.
__device__ __forceinline__ void send(u64* word, u32 round, u32 value) {
    const u64 v = (u64)round << 32 | value;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(v) : "memory");
}

__device__ __forceinline__ u32 receive(const u64* word, u32 round) {
    u64 v;
    do asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(word) : "memory");
    while ((u32)(v >> 32) != round);
    return (u32)v;
}

// 96 bits in one.
struct Letter {
    u32 a, b, c;
};

// Compilers before CUDA 12.3 do not know the 128-bit type. The instruction is the same.
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 3)
#define LOAD_128 "{.reg .b128 v; ld.relaxed.gpu.global.b128 v, [%2]; mov.b128 {%0, %1}, v;}"
#define STORE_128 "{.reg .b128 v; mov.b128 v, {%1, %2}; st.relaxed.gpu.global.b128 [%0], v;}"
#else
#define LOAD_128 "ld.volatile.global.v2.u64 {%0, %1}, [%2];"
#define STORE_128 "st.volatile.global.v2.u64 [%0], {%1, %2};"
#endif

__device__ __forceinline__ void send(uint4* word, u32 round, Letter letter) {
    const u64 low = (u64)letter.b << 32 | letter.a, high = (u64)round << 32 | letter.c;
    asm volatile(STORE_128 ::"l"(word), "l"(low), "l"(high) : "memory");
}

// Reads one word; whether it is of this round shows in the result.
__device__ __forceinline__ bool try_receive(const uint4* word, u32 round, Letter& letter) {
    u64 low, high;
    asm volatile(LOAD_128 : "=l"(low), "=l"(high) : "l"(word) : "memory");
    letter = {(u32)low, (u32)(low >> 32), (u32)high};
    return (u32)(high >> 32) == round;
}

__device__ __forceinline__ Letter receive(const uint4* word, u32 round) {
    Letter letter;
    while (!try_receive(word, round, letter)) {}
    return letter;
}

// Barrier of all blocks; what was written before it is visible behind it. `arrivals` is 0 when the kernel starts, and
// `expected` when it is first passed.
__device__ __forceinline__ void grid_barrier(u32* arrivals, u32& expected) {
    expected += gridDim.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 now;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals) : "memory");
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrivals) : "memory");
        while (now < expected);
    }
    __syncthreads();
}
