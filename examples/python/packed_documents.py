#!/usr/bin/env python3
"""Documents of different lengths in one row of tokens: no padding, and none sees another."""
import nsa_torch
import torch

torch.manual_seed(1)
lengths = [70, 1, 300, 129]
cu_seqlens = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
q, gates = torch.randn(sum(lengths), 4, 32), torch.randn(sum(lengths), 4, 3)
k, v = torch.randn(2, sum(lengths), 2, 32).unbind()

o = nsa_torch.nsa_attention_varlen(q, k, v, gates, cu_seqlens, window=64, top_n=4)
for begin, end in zip(cu_seqlens, cu_seqlens[1:]):
    alone = nsa_torch.nsa_attention(*(x[None, begin:end] for x in (q, k, v, gates)), window=64, top_n=4)
    assert torch.allclose(o[begin:end], alone[0], atol=1e-5), "a document sees another"
print(f"{len(lengths)} documents, {sum(lengths)} tokens: each as if alone")
