#!/usr/bin/env python3
"""flash-linear-attention's NSA, replaced by changing one import. Its tensors: q and k rotated already, activated gates."""
# from fla.ops.nsa import parallel_nsa
from nsa_torch import parallel_nsa

import torch

torch.manual_seed(1)
q = torch.randn(1, 300, 16, 32, requires_grad=True)
k, v = torch.randn(2, 1, 300, 1, 32).unbind()
g_cmp, g_slc, g_swa = torch.rand(3, 1, 300, 16).unbind()

o = parallel_nsa(q, k, v, g_cmp, g_slc, g_swa, block_counts=4, block_size=32, window_size=64)
o.sum().backward()
packed = torch.tensor([0, 100, 300])
o_packed = parallel_nsa(q, k, v, g_cmp, g_slc, g_swa, block_counts=4, block_size=32, window_size=64, cu_seqlens=packed)
first = (o_packed[:, :100] - o[:, :100]).abs().max()
print(f"o {tuple(o.shape)}; packed, the first document differs by {first:.1e}")
assert first < 1e-5
