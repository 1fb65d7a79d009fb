#!/usr/bin/env python3
"""Native Sparse Attention from Python: forward, backward, compiled. Usage: quickstart.py LIBNSA"""
import sys

import torch

if len(sys.argv) != 2:
    sys.exit(__doc__)
torch.ops.load_library(sys.argv[1])
torch.manual_seed(1)

tokens, heads, kv_heads, dim = 256, 8, 2, 64
q = torch.randn(1, tokens, heads, dim, requires_grad=True)
k = torch.randn(1, tokens, kv_heads, dim, requires_grad=True)
v = torch.randn(1, tokens, kv_heads, dim, requires_grad=True)
gate_logits = torch.randn(1, tokens, heads, 3, requires_grad=True)

o, block_idx, _ = torch.ops.nsa.attention_fwd(q, k, v, gate_logits)
o.sum().backward()
print(f"o {tuple(o.shape)}, |d_q| = {q.grad.norm():.3f}")
print(f"blocks that the last query attends: {block_idx[0, -1, 0].tolist()}")


@torch.compile(fullgraph=True)
def layer(q, k, v, gate_logits):
    return torch.ops.nsa.attention_fwd(q, k, v, gate_logits, window=128, top_n=8)[0].tanh()


layer(q, k, v, gate_logits).sum().backward()
print("compiled: forward and backward in one graph")
