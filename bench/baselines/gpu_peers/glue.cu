// SPDX-License-Identifier: Apache-2.0
// What stands around the grouped products of the peers, so that none of them loses time to slow glue: route, sort by
// expert, gather, SwiGLU, combine, one launch each (three and a memset for the sort of many picks); and a read probe.
//
//   x [T, D] bf16   logits [T, E] f32, E <= 256   ids, weights [T * K], renormalised softmax over the picks
//   rows            picks in the order of experts; each expert begins at a multiple of `align`
//   pick_of_row     [rows] T * K in the padding     row_of_pick [T * K]
//   expert_of_block [rows / align]                  expert_of_row [rows] -1 after the last expert (either may be null)
//   bounds          [4 * E] count, begin, end (without the padding), cursor      num_rows [1] with the padding
//
// The order of rows within an expert is that of atomics and may differ between runs. Plain C functions for ctypes: each
// queues its work on `on` and returns the CUDA error.
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

// What the callers share with us; not in the namespace below, which would hide the functions that take it.
struct Sort {
  const int* ids;
  int *pick_of_row, *row_of_pick, *expert_of_block, *expert_of_row, *bounds, *num_rows;
  int picks, experts, align, capacity;  // capacity: rows of expert_of_row
};

namespace {

constexpr int kMaxExperts = 256, kWarp = 32, kSmallSort = 4096, kThreads = 128, kSortBlocks = 64;
constexpr unsigned kAll = ~0u;

__device__ float2 floats(uint32_t two) {
  return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
}
__device__ uint32_t pair(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&two);
}

// A warp for each token; a lane holds the logits of experts lane, lane + 32, ...
__global__ void route(const float* logits, int tokens, int experts, int top_k, int* ids,
                      float* weights) {
  const int token = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (token >= tokens) return;
  float mine[kMaxExperts / kWarp];
#pragma unroll
  for (int i = 0; i < kMaxExperts / kWarp; ++i) {
    const int expert = i * kWarp + lane;
    mine[i] = expert < experts ? logits[int64_t{token} * experts + expert] : -INFINITY;
  }
  float first = 0, sum = 0, weight = 0;
  int id = 0;
  for (int pick = 0; pick < top_k; ++pick) {
    float best = -INFINITY;
    int at = kMaxExperts;
#pragma unroll
    for (int i = 0; i < kMaxExperts / kWarp; ++i) {
      if (mine[i] > best) best = mine[i], at = i * kWarp + lane;
    }
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(kAll, best, offset);
      const int other_at = __shfl_xor_sync(kAll, at, offset);
      if (other > best || (other == best && other_at < at)) best = other, at = other_at;
    }
    if (pick == 0) first = best;
    const float p = __expf(best - first);
    sum += p;
    if (lane == pick) weight = p, id = at;
#pragma unroll
    for (int i = 0; i < kMaxExperts / kWarp; ++i) {
      if (i * kWarp + lane == at) mine[i] = -INFINITY;
    }
  }
  if (lane < top_k) {
    ids[token * top_k + lane] = id;
    weights[token * top_k + lane] = weight / sum;
  }
}

// begin[e] = sum of the padded counts before e; begin[experts] = all rows. By the first warp of the block.
__device__ void scan_padded(const int* counts, int* begin, const Sort& sort) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane >= kWarp) return;
  int base = 0;
  for (int first = 0; first < sort.experts; first += kWarp) {
    const int e = first + lane;
    const int padded =
        e < sort.experts ? (counts[e] + sort.align - 1) / sort.align * sort.align : 0;
    int sum = padded;
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const int other = __shfl_up_sync(kAll, sum, offset);
      if (lane >= offset) sum += other;
    }
    if (e < sort.experts) begin[e] = base + sum - padded;
    base += __shfl_sync(kAll, sum, kWarp - 1);
  }
  if (lane == 0) begin[sort.experts] = *sort.num_rows = base;
}

// Everything that counts alone decide: bounds, padding, experts of blocks.
__device__ void lay_out(const int* counts, const int* begin, const Sort& sort) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  for (int e = thread / kWarp; e < sort.experts; e += warps) {
    const int count = counts[e], from = begin[e], to = begin[e + 1];
    if (lane < 4) {
      const int values[4] = {count, from, from + count, from};
      sort.bounds[lane * sort.experts + e] = values[lane];
    }
    for (int row = from + count + lane; row < to; row += kWarp) {
      sort.pick_of_row[row] = sort.picks;
      if (sort.expert_of_row != nullptr) sort.expert_of_row[row] = e;
    }
    if (sort.expert_of_block == nullptr) continue;
    for (int b = from / sort.align + lane; b < to / sort.align; b += kWarp)
      sort.expert_of_block[b] = e;
  }
  if (sort.expert_of_row == nullptr) return;
  for (int row = begin[sort.experts] + thread; row < sort.capacity;
       row += static_cast<int>(blockDim.x))
    sort.expert_of_row[row] = -1;
}

__device__ void place(const Sort& sort, int pick, int expert, int row) {
  sort.pick_of_row[row] = pick;
  sort.row_of_pick[pick] = row;
  if (sort.expert_of_row != nullptr) sort.expert_of_row[row] = expert;
}

__device__ void clear(int* counts, int experts) {
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x))
    counts[e] = 0;
  __syncthreads();
}

__global__ void sort_few(Sort sort) {
  __shared__ int counts[kMaxExperts], begin[kMaxExperts + 1];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  clear(counts, sort.experts);
  for (int i = thread; i < sort.picks; i += threads) atomicAdd(&counts[sort.ids[i]], 1);
  __syncthreads();
  scan_padded(counts, begin, sort);
  __syncthreads();
  lay_out(counts, begin, sort);
  __syncthreads();
  for (int i = thread; i < sort.picks; i += threads)
    place(sort, i, sort.ids[i], atomicAdd(&begin[sort.ids[i]], 1));
}

__global__ void count_picks(Sort sort) {
  __shared__ int counts[kMaxExperts];
  clear(counts, sort.experts);
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < sort.picks; i += step)
    atomicAdd(&counts[sort.ids[i]], 1);
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < sort.experts; e += static_cast<int>(blockDim.x))
    if (counts[e] > 0) atomicAdd(&sort.bounds[e], counts[e]);
}

__global__ void lay_out_many(Sort sort) {
  __shared__ int counts[kMaxExperts], begin[kMaxExperts + 1];
  for (int e = static_cast<int>(threadIdx.x); e < sort.experts; e += static_cast<int>(blockDim.x))
    counts[e] = sort.bounds[e];
  __syncthreads();
  scan_padded(counts, begin, sort);
  __syncthreads();
  lay_out(counts, begin, sort);
}

// A block places a run of picks; it reserves its rows of each expert at once.
__global__ void place_many(Sort sort) {
  __shared__ int counts[kMaxExperts], next[kMaxExperts];
  clear(counts, sort.experts);
  const int run = (sort.picks + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int from = static_cast<int>(blockIdx.x) * run, to = min(sort.picks, from + run);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = from + thread; i < to; i += threads) atomicAdd(&counts[sort.ids[i]], 1);
  __syncthreads();
  for (int e = thread; e < sort.experts; e += threads)
    next[e] = counts[e] > 0 ? atomicAdd(&sort.bounds[3 * sort.experts + e], counts[e]) : 0;
  __syncthreads();
  for (int i = from + thread; i < to; i += threads)
    place(sort, i, sort.ids[i], atomicAdd(&next[sort.ids[i]], 1));
}

// Grids below: x is a row, y a run of 128 vectors of 8 values.
__device__ int vector_index() { return static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x); }

__global__ void gather(const uint4* x, const int* pick_of_row, const int* num_rows, int picks,
                       int top_k, int vectors, uint4* rows) {
  const int64_t row = blockIdx.x;
  const int i = vector_index();
  if (row >= *num_rows || i >= vectors) return;
  const int pick = pick_of_row[row];
  rows[row * vectors + i] =
      pick < picks ? x[int64_t{pick / top_k} * vectors + i] : make_uint4(0, 0, 0, 0);
}

__device__ float swish(float value) { return value / (1 + __expf(-value)); }
__device__ uint32_t gated(uint32_t gate, uint32_t up) {
  const float2 g = floats(gate), u = floats(up);
  return pair(swish(g.x) * u.x, swish(g.y) * u.y);
}

// [rows, gate | up] to [rows, F]; num_rows may be null: all rows of the grid.
__global__ void swiglu(const uint4* both, const int* num_rows, int vectors, uint4* hidden) {
  const int64_t row = blockIdx.x;
  const int i = vector_index();
  if ((num_rows != nullptr && row >= *num_rows) || i >= vectors) return;
  const uint4 gate = both[row * 2 * vectors + i], up = both[row * 2 * vectors + vectors + i];
  hidden[row * vectors + i] = make_uint4(gated(gate.x, up.x), gated(gate.y, up.y),
                                         gated(gate.z, up.z), gated(gate.w, up.w));
}

__device__ void add(float* sums, float weight, uint4 values) {
  const uint32_t words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = floats(words[i]);
    sums[2 * i] += weight * two.x;
    sums[2 * i + 1] += weight * two.y;
  }
}

// Null row_of_pick: the rows are in the order of picks. Null weights: the products have applied them.
__global__ void combine(const uint4* rows, const int* row_of_pick, const float* weights, int top_k,
                        int vectors, uint4* y) {
  const int token = static_cast<int>(blockIdx.x), i = vector_index();
  if (i >= vectors) return;
  float sums[8] = {};
#pragma unroll 4
  for (int pick = token * top_k; pick < (token + 1) * top_k; ++pick) {
    const int64_t row = row_of_pick != nullptr ? row_of_pick[pick] : pick;
    add(sums, weights != nullptr ? weights[pick] : 1.0f, rows[row * vectors + i]);
  }
  y[int64_t{token} * vectors + i] = make_uint4(pair(sums[0], sums[1]), pair(sums[2], sums[3]),
                                               pair(sums[4], sums[5]), pair(sums[6], sums[7]));
}

__global__ void read_all(const uint4* from, int64_t count, uint32_t* sink) {
  uint32_t sum = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    sum ^= a.x ^ a.y ^ b.z ^ b.w ^ c.x ^ c.y ^ d.z ^ d.w;
  }
  if (sum == 0x12345678u) *sink = sum;
}

dim3 grid_of(int rows, int vectors) {
  return dim3(static_cast<unsigned>(rows),
              static_cast<unsigned>((vectors + kThreads - 1) / kThreads));
}

}  // namespace

extern "C" {

int glue_route(const float* logits, int tokens, int experts, int top_k, int* ids, float* weights,
               cudaStream_t on) {
  route<<<(tokens + 3) / 4, 4 * kWarp, 0, on>>>(logits, tokens, experts, top_k, ids, weights);
  return cudaGetLastError();
}

int glue_sort(const Sort* of, cudaStream_t on) {
  const Sort sort = *of;
  if (sort.picks <= kSmallSort) {
    sort_few<<<1, 1024, 0, on>>>(sort);
    return cudaGetLastError();
  }
  cudaMemsetAsync(sort.bounds, 0, sort.experts * sizeof(int), on);
  count_picks<<<kSortBlocks, 256, 0, on>>>(sort);
  lay_out_many<<<1, 1024, 0, on>>>(sort);
  place_many<<<kSortBlocks, 256, 0, on>>>(sort);
  return cudaGetLastError();
}

int glue_gather(const void* x, const Sort* sort, int top_k, int width, int rows, void* to,
                cudaStream_t on) {
  const int vectors = width / 8;
  gather<<<grid_of(rows, vectors), kThreads, 0, on>>>(
      static_cast<const uint4*>(x), sort->pick_of_row, sort->num_rows, sort->picks, top_k, vectors,
      static_cast<uint4*>(to));
  return cudaGetLastError();
}

int glue_swiglu(const void* both, const int* num_rows, int ffn_width, int rows, void* hidden,
                cudaStream_t on) {
  const int vectors = ffn_width / 8;
  swiglu<<<grid_of(rows, vectors), kThreads, 0, on>>>(static_cast<const uint4*>(both), num_rows,
                                                      vectors, static_cast<uint4*>(hidden));
  return cudaGetLastError();
}

int glue_combine(const void* rows, const int* row_of_pick, const float* weights, int tokens,
                 int top_k, int width, void* y, cudaStream_t on) {
  const int vectors = width / 8;
  combine<<<grid_of(tokens, vectors), kThreads, 0, on>>>(static_cast<const uint4*>(rows),
                                                         row_of_pick, weights, top_k, vectors,
                                                         static_cast<uint4*>(y));
  return cudaGetLastError();
}

int glue_read(const void* from, int64_t bytes, uint32_t* sink, cudaStream_t on) {
  read_all<<<132 * 16, 512, 0, on>>>(static_cast<const uint4*>(from), bytes / 16, sink);
  return cudaGetLastError();
}

}  // extern "C"
