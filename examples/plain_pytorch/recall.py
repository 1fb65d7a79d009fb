#!/usr/bin/env python3
"""Recall by an NSA written from the paper alone (arXiv 2502.11089), in plain PyTorch: no line of it is shared with nsa/.
It trains on a corpus of `nsa-data --task recall` with the sizes of configs/models/recall_cpu.json and prints how many of the
kept-out answers are right, so that what the project's models recall can be held against it (docs/quality.md)."""
import argparse
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

DIM, HEADS, HEAD_DIM, LAYERS, HIDDEN = 64, 2, 32, 2, 32
BLOCK, SELECTED, WINDOW = 8, 4, 4


def rotate(x):
    """x [B, H, S, D]: pairs of elements by their token."""
    angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(0, x.shape[3], 2) / x.shape[3])
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).flatten(-2)


def attend(q, k, v, mask):
    """Output and probabilities; a row that sees nothing is 0."""
    p = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~mask, float("-inf")).softmax(-1).nan_to_num()
    return p @ v, p


class NSA(nn.Module):
    """Eq. 5 to 12 with means for compression; all query heads share one KV head."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense
        self.q = nn.Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.kv = nn.Linear(DIM, (1 if dense else 3) * 2 * HEAD_DIM, bias=False)
        self.gate = nn.Linear(DIM, HEADS * 3)
        self.out = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x):
        B, S, _ = x.shape
        q = rotate(self.q(x).view(B, S, HEADS, HEAD_DIM).transpose(1, 2))
        kv = self.kv(x).view(B, S, -1, 2, HEAD_DIM).permute(2, 3, 0, 1, 4).unsqueeze(3)  # [., 2, B, 1, S, D]
        t, s = torch.arange(S)[:, None], torch.arange(S)[None]
        if self.dense:
            o = attend(q, rotate(kv[0, 0]), kv[0, 1], s <= t)[0]
            return self.out(o.transpose(1, 2).flatten(-2))
        blocks = S // BLOCK
        pooled = [z.view(B, 1, blocks, BLOCK, HEAD_DIM).mean(3) for z in (rotate(kv[0, 0]), kv[0, 1])]
        whole = (torch.arange(blocks)[None] + 1) * BLOCK <= t + 1  # the last token of the block is there
        compressed, p = attend(q, *pooled, whole)
        current = torch.arange(blocks)[None] == t // BLOCK
        score = p.detach().sum(1).masked_fill(current, 9.0).masked_fill(~(whole | current), -1.0)  # [B, S, blocks]
        chosen = torch.zeros_like(score, dtype=torch.bool).scatter(-1, score.topk(min(SELECTED, blocks), -1).indices, True)
        chosen &= whole | current
        selected = attend(q, rotate(kv[1, 0]), kv[1, 1],
                          (chosen.repeat_interleave(BLOCK, -1) & (s <= t)).unsqueeze(1))[0]
        window = attend(q, rotate(kv[2, 0]), kv[2, 1], (s <= t) & (s > t - WINDOW))[0]
        g = self.gate(x).sigmoid().view(B, S, HEADS, 3).transpose(1, 2)
        o = g[..., :1] * compressed + g[..., 1:2] * selected + g[..., 2:] * window
        return self.out(o.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, dense):
        super().__init__()
        self.attention, self.up, self.down = NSA(dense), nn.Linear(DIM, 2 * HIDDEN, bias=False), nn.Linear(HIDDEN, DIM, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(DIM, eps=1e-6) for _ in range(2))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        a, b = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(a) * b)


def rows_of(folder, split):
    """int64 [rows, tokens of a row] of both files of a split: tokens and answers (0: nothing is asked)."""
    row = json.loads((folder / "manifest.json").read_text())["row_tokens"]
    read = lambda kind: torch.frombuffer(bytearray((folder / f"{kind}_00000.tokens").read_bytes()), dtype=torch.uint8)
    return [read(kind).view(-1, row).long() for kind in (split, split + "_answers")]


def logits_and_targets(model, rows, answers):
    asked = answers[:, 1:] != 0
    return model(rows[:, :-1])[asked], answers[:, 1:][asked]


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--data", type=pathlib.Path, required=True, help="folder that nsa-data made")
    args.add_argument("--attention", choices=("nsa", "dense"), default="nsa")
    args.add_argument("--steps", type=int, default=2000)
    args.add_argument("--seed", type=int, default=1, help="of weights and of the order of rows")
    o = args.parse_args()
    torch.manual_seed(o.seed)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Embedding(256, DIM), *(Layer(o.attention == "dense") for _ in range(LAYERS)),
                          nn.RMSNorm(DIM, eps=1e-6), nn.Linear(DIM, 256, bias=False))
    nn.init.normal_(model[0].weight, std=0.02)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95))
    warmup, least = 50, 0.1
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: (k + 1) / warmup if k < warmup else
        least + (1 - least) * (1 + math.cos(math.pi * (k - warmup) / max(1, o.steps - warmup))) / 2)
    rows, answers = rows_of(o.data, "train")
    order = torch.randperm(len(rows))
    for step in range(o.steps):
        batch = order[torch.arange(step * 32, step * 32 + 32) % len(rows)]
        loss = F.cross_entropy(*logits_and_targets(model, rows[batch], answers[batch]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 200 == 0 or step + 1 == o.steps:
            print(f"step {step + 1}/{o.steps}  loss {loss.item():.3f}", flush=True)
    with torch.no_grad():
        logits, targets = logits_and_targets(model, *rows_of(o.data, "val"))
    right = (logits.argmax(-1) == targets).double().mean().item()
    print(f"{o.attention}, seed {o.seed}: {100 * right:.2f} % of {len(targets)} kept-out answers right")


if __name__ == "__main__":
    main()
