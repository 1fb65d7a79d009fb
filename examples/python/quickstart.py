#!/usr/bin/env python3
"""Native Sparse Attention from Python: forward, backward, and which code computed it."""
import nsa_torch
import torch

torch.manual_seed(1)
q = torch.randn(1, 256, 8, 64, requires_grad=True)  # batch, tokens, query heads, dim
k = torch.randn(1, 256, 2, 64, requires_grad=True)  # KV heads
v = torch.randn(1, 256, 2, 64, requires_grad=True)
gate_logits = torch.randn(1, 256, 8, 3, requires_grad=True)  # compressed, selected, window

o = nsa_torch.nsa_attention(q, k, v, gate_logits)
o.sum().backward()
print(f"o {tuple(o.shape)}, |d_q| = {q.grad.norm():.3f}, computed by {nsa_torch.explain(q, k, v, gate_logits)}")
