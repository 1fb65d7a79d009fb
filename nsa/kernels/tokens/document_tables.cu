// Tables of packed documents: a thread makes an entry of each of them.
#include "nsa/kernels/tokens/document_tables.h"

#include <algorithm>
#include <cmath>

#include "nsa/kernels/common/launch.cuh"

namespace nsa::kernels {
namespace {

constexpr int kThreads = 128;

/// A document; of no token where there is none.
struct Document {
  int begin, end;

  __device__ static Document of(const DocumentTables& p, int index) {
    const int begin = min(max(p.cu_seqlens[index], 0), p.num_tokens);
    return {begin, min(max(p.cu_seqlens[index + 1], begin), p.num_tokens)};
  }
  __device__ int blocks(const DocumentTables& p) const {
    return end - begin < p.block_size ? 0 : (end - begin - p.block_size) / p.block_stride + 1;
  }
};

/// The last document whose place is not behind `place`; places ascend.
template <class PlaceOf>
__device__ int last_document(const DocumentTables& p, int place, const PlaceOf& place_of) {
  int low = 0, high = p.documents;  // the answer is in [low, high), or the first
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (place_of(middle) <= place)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__device__ void fill_token(const DocumentTables& p, int token) {
  const Document own =
      Document::of(p, last_document(p, token, [&](int d) { return p.cu_seqlens[d]; }));
  const int start = min(own.begin, token), position = token - start;
  p.start[token] = start, p.position[token] = position;
  const bool inside = token >= own.begin && token < own.end && position < p.longest;
  if (p.poison != nullptr) p.poison[token] = inside ? 0.f : NAN;
  const int64_t row = int64_t(token) * p.num_kv_heads;
  if (p.window_range != nullptr)
    for (int head = 0; head < p.num_kv_heads; ++head)
      p.window_range[row + head] = make_int2(max(start, token - p.window + 1), token + 1);
  if (p.block_range == nullptr) return;
  const int first = start / p.block_stride,
            visible = position + 1 < p.block_size
                          ? 0
                          : (position + 1 - p.block_size) / p.block_stride + 1;
  for (int head = 0; head < p.num_kv_heads; ++head)
    p.block_range[row + head] = make_int2(first, first + visible);
}

__device__ void fill_block(const DocumentTables& p, int row) {
  const Document own = Document::of(
      p, last_document(p, row, [&](int d) { return p.cu_seqlens[d] / p.block_stride; }));
  const int block = row - own.begin / p.block_stride;
  p.block_first[row] =
      block >= 0 && block < own.blocks(p) ? own.begin + block * p.block_stride : -1;
}

/// Tile i of a document that begins at token b is tile b / tokens + d + i of all: those of the next
/// document begin behind its last one.
__device__ void fill_tile(const DocumentTables& p, const DocumentTables::Tiles& tiles, int tile) {
  const auto first_tile = [&](int d) { return p.cu_seqlens[d] / tiles.tokens + d; };
  const int document = last_document(p, tile, first_tile);
  const Document own = Document::of(p, document);
  const int first = (tile - first_tile(document)) * tiles.tokens;
  const int count = min(own.end - own.begin - first, tiles.tokens);
  if (first < 0 || count <= 0)
    tiles.out[tile] = {0, 0, 0, 0};
  else
    tiles.out[tile] = {own.begin + first, count, own.begin,
                       tiles.of_blocks ? own.begin / p.block_stride : own.begin};
}

__global__ void __launch_bounds__(kThreads)
    document_tables_kernel(const __grid_constant__ DocumentTables p) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < p.num_tokens) fill_token(p, i);
  if (i < p.num_tokens / p.block_stride) fill_block(p, i);
  for (const DocumentTables::Tiles& tiles : p.tiles)
    if (tiles.out != nullptr && i < num_document_tiles(p.num_tokens, p.documents, tiles.tokens))
      fill_tile(p, tiles, i);
}

}  // namespace

cudaError_t document_tables(const DocumentTables& p, cudaStream_t stream) {
  if (p.documents < 1 || p.block_stride < 1 || p.block_size < p.block_stride)
    return cudaErrorInvalidValue;
  int entries = p.num_tokens;
  for (const DocumentTables::Tiles& tiles : p.tiles) {
    if (tiles.tokens < 1) return cudaErrorInvalidValue;
    if (tiles.out != nullptr)
      entries = std::max(entries, num_document_tiles(p.num_tokens, p.documents, tiles.tokens));
  }
  if (entries == 0) return cudaSuccess;
  return portable::launch(document_tables_kernel,
                          static_cast<unsigned>((entries + kThreads - 1) / kThreads), kThreads, 0,
                          stream, p);
}

}  // namespace nsa::kernels
