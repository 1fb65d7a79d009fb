#!/usr/bin/env python3
"""A tiny model that learns to copy, on one rank or on several (Gloo):
    python train_tiny.py
    torchrun --nproc-per-node 2 train_tiny.py
"""
import os

import torch
import torch.distributed as dist
from nsa_torch import NSAttention
from torch import nn

WORDS, HALF, DIM = 16, 16, 32


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, DIM)
        sizes = dict(block_size=4, block_stride=2, sel_block_size=4, top_n=6, window=8)
        self.layers = nn.ModuleList(NSAttention(DIM, 4, 2, gate="sigmoid", **sizes) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(3))
        self.head = nn.Linear(DIM, WORDS, bias=False)

    def forward(self, words):
        x = self.embed(words)
        for layer, norm in zip(self.layers, self.norms):
            x = x + layer(norm(x))
        return self.head(self.norms[-1](x))


def main():
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.manual_seed(1)
    model = Model()
    if ranks > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    generator = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(60):
        half = torch.randint(WORDS, (16 // ranks, HALF), generator=generator)
        words = torch.cat([half, half], 1)
        logits = model(words[:, :-1])[:, HALF - 1 :]  # the second half can be known
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, HALF:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if rank == 0:
        print(f"{ranks} rank(s): loss {losses[0]:.2f} -> {losses[-1]:.2f} nat")
        assert losses[-1] < losses[0] - 0.3, "nothing was learnt"
    if ranks > 1:
        dist.destroy_process_group()


main()
