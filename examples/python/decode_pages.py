#!/usr/bin/env python3
"""Decoding with pages of one's own, as a serving engine has them: the operator changes the caches in place."""
import torch

import nsa_torch  # registers torch.ops.nsa

torch.manual_seed(1)
sequences, capacity, page, heads, kv_heads, dim = 2, 256, 16, 8, 2, 32
settings = dict(block_size=32, block_stride=16, window=64, top_n=4)
blocks = (capacity - settings["block_size"]) // settings["block_stride"] + 1


def memory(*rows):
    return [torch.empty(*rows, kv_heads, dim) for _ in range(2)]  # keys and values


def pages(rows, pool):
    """A table of pages from a pool, in any order, and the memory of the pool."""
    columns = -(-rows // page)
    table = torch.randperm(pool)[: sequences * columns].view(sequences, columns).int()
    return table, memory(pool, page)


page_table, tokens = pages(capacity, pool=40)
cmp_page_table, compressed = pages(blocks, pool=4)
window, recent = memory(sequences, settings["window"]), memory(sequences, settings["block_size"])
num_tokens = torch.zeros(sequences, dtype=torch.int32)
caches = (*tokens, *compressed, *window, *recent, page_table, cmp_page_table, num_tokens)

q, gates = torch.randn(sequences, 100, heads, dim), torch.randn(sequences, 100, heads, 3)
k, v = torch.randn(2, sequences, 100, kv_heads, dim).unbind()
steps = [slice(0, 90)] + [slice(t, t + 1) for t in range(90, 100)]  # a prefill, then ten steps
o = [torch.ops.nsa.decode_(q[:, s], k[:, s], v[:, s], gates[:, s], *caches, **settings) for s in steps]
at_once = nsa_torch.nsa_attention(q, k, v, gates, **settings)
difference = (torch.cat(o, 1) - at_once).abs().max()
print(f"{num_tokens.tolist()} tokens; differs from one call by {difference:.1e}")
assert difference < 1e-5
