// Products that the four warps of a group do together (wgmma; compute capability 9.0 alone, architecture sm_90a).

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Shows what this thread wrote to shared memory to the tensor cores, which read it by a way of their own.
__device__ __forceinline__ void fence_shared_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Must come before the first product, so that earlier writes to the registers it uses are done.
__device__ __forceinline__ void fence_registers() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits for all products under way, whose sums are `c`.
template <int N>
__device__ __forceinline__ void wait_products(float (&c)[N]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(c[i])::"memory");  // so that no read moves before the wait
}

// Products read their registers while they are under way: this, behind the wait, keeps the compiler from using them
// again before.
__device__ __forceinline__ void hold_registers(const unsigned (&a)[4]) {
    asm volatile("" ::"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]) : "memory");
}

// Describes a matrix in shared memory whose inner dimension is contiguous by 16 bytes: 8 rows of 16 bytes lie together,
// `line` bytes from those of the next 16 bytes, 128 bytes from those of the next 8 rows.
__device__ __forceinline__ unsigned long long matrix_in_shared(const uint4* start, unsigned line) {
    const unsigned long long address = __cvta_generic_to_shared(start);
    return (address >> 4 & 0x3fffu) | static_cast<unsigned long long>(line >> 4) << 16 | 8ull << 32;
}

#define SUMS_8(c, i) \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
        "+f"(c[i + 7])
#define SUMS(c) SUMS_8(c, 0), SUMS_8(c, 8), SUMS_8(c, 16), SUMS_8(c, 24)
#define NAMES_OF_SUMS                                                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// c = a (64 x 8, in registers) * b (8 x 64, in shared memory), or c += it when `add`; tf32 in, float32 accumulators. A
// thread's shares of a and c are those of mma.sync's fragments: of a's 16 rows for each warp, and of c 8 columns after
// 8 columns.
__device__ __forceinline__ void multiply_tf32(float (&c)[32], const unsigned (&a)[4], unsigned long long b, bool add) {
    asm volatile(
        "{.reg .pred p; setp.ne.u32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 " NAMES_OF_SUMS
        ", {%32, %33, %34, %35}, %36, p, 1, 1;}"
        : SUMS(c)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<unsigned>(add)));
}

// The same with 16 for 8 and bfloat16 in.
__device__ __forceinline__ void multiply_bfloat(float (&c)[32], const unsigned (&a)[4], unsigned long long b,
                                                bool add) {
    asm volatile(
        "{.reg .pred p; setp.ne.u32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " NAMES_OF_SUMS
        ", {%32, %33, %34, %35}, %36, p, 1, 1, 0;}"
        : SUMS(c)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<unsigned>(add)));
}

#endif
