"""Steps of a small model's training on a GPU, eager and compiled with fullgraph, alternating; one JSON object.
Usage: training_speed.py [PAIRS]"""
import json
import statistics
import sys
import time

import torch

import nsa_torch

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
STEPS, BATCH, TOKENS, WIDTH = 20, 4, 2048, 768


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(WIDTH) for _ in range(2))
        self.attention = nsa_torch.NSAttention(WIDTH, 12, 2, head_dim=64)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


def trainer(compiled):
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(Block() for _ in range(4))).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(BATCH, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)
    run = torch.compile(model, fullgraph=True) if compiled else model

    def step():
        loss = run(x).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def seconds(step):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS


eager, compiled = trainer(False), trainer(True)
for _ in range(5):
    losses = eager().item(), compiled().item()
times = [(seconds(eager), seconds(compiled)) for _ in range(PAIRS)]
ratios = sorted(e / c for e, c in times)
print(json.dumps({
    "device": torch.cuda.get_device_name(),
    "torch": torch.__version__,
    "model": f"4 blocks, width {WIDTH}, 12/2 heads of 64, B {BATCH}, S {TOKENS}, bf16",
    "steps_a_sample": STEPS,
    "loss_after_5_steps": {"eager": losses[0], "compiled": losses[1]},
    "eager_ms": [round(1e3 * e, 4) for e, _ in times],
    "compiled_ms": [round(1e3 * c, 4) for _, c in times],
    "eager_over_compiled": {"median": round(statistics.median(ratios), 4), "least": round(ratios[0], 4), "most": round(ratios[-1], 4)},
}))
