#!/usr/bin/env python3
"""torch.compile sees one operator: forward and backward in one graph, static and dynamic shapes; on a GPU a training step
as a CUDA graph."""
import torch
from nsa_torch import NSAttention

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1)
layer = NSAttention(64, num_heads=4, num_kv_heads=1, gate="sigmoid", window=32, top_n=4).to(device)


def loss(x):
    return layer(x).square().mean()


for dynamic in (False, True):
    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic)
    for tokens in (128, 160):
        x = torch.randn(2, tokens, 64, device=device)
        value = compiled(x)
        value.backward()
        assert torch.allclose(value, loss(x)), "compiled and eager differ"
print("compiled: static and dynamic, equal to eager")

if device == "cuda":
    layer.to(torch.bfloat16)
    x = torch.randn(2, 2048, 64, device=device, dtype=torch.bfloat16)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):  # what is taken once is taken outside the graph
            loss(x).backward()
    torch.cuda.synchronize()
    layer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = loss(x)
        value.backward()
    graph.replay()
    print(f"captured: loss {value.item():.4f}")
