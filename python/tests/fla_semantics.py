"""flash-linear-attention's NSA, stated once more in fp64: loops over queries, nothing shared with the operators."""
import math

import torch


def softmax_sum(logits, values):
    """Weighted sum [V] of values [N, V]; zeros without any."""
    if logits.numel() == 0:
        return values.new_zeros(values.shape[-1])
    return torch.softmax(logits, 0) @ values


def one_document(q, k, v, gates, block_indices, block_counts, block_size, window_size, scale):
    """q [T, HQ, K], k [T, H, K], v [T, H, V], gates three of [T, HQ] or None, block_indices [T, H, S] -> [T, HQ, V]."""
    tokens, heads, dim = q.shape
    group = heads // k.shape[1]
    whole = tokens // block_size
    k_cmp = k[: whole * block_size].unflatten(0, (whole, block_size)).mean(1)
    v_cmp = v[: whole * block_size].unflatten(0, (whole, block_size)).mean(1)
    rows = []
    for t in range(tokens):
        current = t // block_size
        complete = (t + 1) // block_size  # compressed blocks that end at t or before
        row = []
        for h in range(k.shape[1]):
            own = range(h * group, (h + 1) * group)
            logits = {i: scale * (k_cmp[:complete, h] @ q[t, i]) for i in own}
            if gates[0] is None:
                blocks = {int(b) for b in block_indices[t, h] if 0 <= b <= current}
            else:
                importance = sum(torch.softmax(logits[i], 0) for i in own) if complete else torch.zeros(0)
                forced = {0, current, max(current - 1, 0)}
                free = sorted((b for b in range(complete) if b not in forced), key=lambda b: (-importance[b].item(), b))
                blocks = forced | set(free[: block_counts - len(forced)])
            keys = [j for b in sorted(blocks) for j in range(b * block_size, min((b + 1) * block_size, t + 1))]
            near = range(max(0, t + 1 - window_size), t + 1)
            for i in own:
                gate = [1.0 if g is None else g[t, i] for g in gates]
                o = gate[1] * softmax_sum(scale * (k[keys, h] @ q[t, i]), v[keys, h])
                if gates[0] is not None:
                    o = o + gate[0] * softmax_sum(logits[i], v_cmp[:complete, h])
                if window_size > 0:
                    o = o + gate[2] * softmax_sum(k[near.start : near.stop, h] @ q[t, i] / math.sqrt(dim), v[near.start : near.stop, h])
                row.append(o)
        rows.append(torch.stack(row))
    return torch.stack(rows)


def parallel_nsa(q, k, v, g_cmp=None, g_slc=None, g_swa=None, block_indices=None, block_counts=16, block_size=64,
                 window_size=0, scale=None, cu_seqlens=None):
    """The signature of the drop-in; differentiable by autograd."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    settings = (block_counts, block_size, window_size, scale)

    def part(x, b, begin, end):
        return None if x is None else x[b, begin:end]

    documents = [(b, 0, q.shape[1]) for b in range(q.shape[0])]
    if cu_seqlens is not None:
        offsets = cu_seqlens.tolist()
        documents = [(0, begin, end) for begin, end in zip(offsets, offsets[1:]) if end > begin]
    rows = [
        one_document(*(part(x, *d) for x in (q, k, v)), [part(g, *d) for g in (g_cmp, g_slc, g_swa)],
                     part(block_indices, *d), *settings)
        for d in documents
    ]
    return torch.cat(rows).unsqueeze(0) if cu_seqlens is not None else torch.stack(rows)
