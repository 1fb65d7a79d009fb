#!/usr/bin/env python3
"""Compiles a layer ahead of time into a package that a program without Python runs. Usage: package.py PACKAGE.pt2"""
import sys

import torch
from nsa_torch import NSAttention

torch.manual_seed(1)
layer = NSAttention(64, num_heads=4, num_kv_heads=1, gate="sigmoid", window=32, top_n=4).eval()
x = torch.ones(2, 128, 64)
with torch.no_grad():
    program = torch.export.export(layer, (x,))
    path = torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1])
    print(f"{path}: the sum of its output is {layer(x).sum():.4f}")
