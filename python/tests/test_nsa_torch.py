#!/usr/bin/env python3
"""The installed package nsa_torch: calls, module, cache, errors, and the drop-in against a second statement of its
semantics. Usage: test_nsa_torch.py [cpu|cuda]
"""
import subprocess
import sys
import unittest

import torch

import nsa_torch
from fla_semantics import parallel_nsa as stated

DEVICE = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1] in ("cpu", "cuda") else "cpu"
SMALL = dict(block_size=4, block_stride=2, sel_block_size=4, top_n=4, window=5)


def randn(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64).to(DEVICE, dtype)


def tokens(rows=(2, 19), heads=4, kv_heads=2, dk=8, dv=6, dtype=torch.float64):
    torch.manual_seed(7)
    return [randn(*rows, *shape, dtype=dtype) for shape in ((heads, dk), (kv_heads, dk), (kv_heads, dv), (heads, 3))]


class Calls(unittest.TestCase):
    def test_is_the_operator(self):
        q, k, v, gates = tokens()
        want = torch.ops.nsa.attention_fwd(q, k, v, gates, **SMALL)[0]
        self.assertTrue(torch.equal(nsa_torch.nsa_attention(q, k, v, gates, **SMALL), want))
        equal = torch.ops.nsa.attention_fwd(q, k, v, torch.zeros_like(gates), **SMALL)[0]
        self.assertTrue(torch.equal(nsa_torch.nsa_attention(q, k, v, **SMALL), equal))

    def test_documents_are_calls_of_their_own(self):
        q, k, v, gates = tokens(rows=(23,))
        offsets = torch.tensor([0, 9, 23], device=DEVICE)
        o = nsa_torch.nsa_attention_varlen(q, k, v, gates, offsets, **SMALL)
        for begin, end in ((0, 9), (9, 23)):
            alone = nsa_torch.nsa_attention(*(x[None, begin:end] for x in (q, k, v, gates)), **SMALL)
            torch.testing.assert_close(o[begin:end], alone[0])
        bounded = nsa_torch.nsa_attention_varlen(q, k, v, gates, offsets, 14, **SMALL)
        self.assertTrue(torch.equal(bounded, o))
        with self.assertRaisesRegex(ValueError, "document 1 of cu_seqlens must be of at most max_seqlen = 13 tokens, got 14"):
            nsa_torch.nsa_attention_varlen(q, k, v, gates, offsets.cpu(), max_seqlen=13, **SMALL)

    def test_one_projection(self):
        q, k, v, gates = tokens()
        qkv = torch.cat([x.flatten(2) for x in (q, k, v)], -1).requires_grad_()
        o = nsa_torch.nsa_attention_qkvpacked(qkv, gates, num_heads=4, num_kv_heads=2, v_head_dim=6, **SMALL)
        self.assertTrue(torch.equal(o, nsa_torch.nsa_attention(q, k, v, gates, **SMALL)))
        self.assertEqual(torch.autograd.grad(o.sum(), qkv)[0].shape, qkv.shape)
        equal = nsa_torch.nsa_attention_qkvpacked(qkv, num_heads=4, num_kv_heads=2, v_head_dim=6, **SMALL)
        self.assertTrue(torch.equal(equal, nsa_torch.nsa_attention(q, k, v, **SMALL)))
        with self.assertRaisesRegex(ValueError, "qkv must be"):
            nsa_torch.nsa_attention_qkvpacked(qkv, gates, num_heads=4, num_kv_heads=2, **SMALL)

    def test_explain(self):
        q, k, v, gates = tokens()
        found = nsa_torch.explain(q, k, v, gates, **SMALL)
        self.assertEqual(found.backend, "plain")
        self.assertNotEqual(found.obstacle, "")
        self.assertIn(found.obstacle, str(found))
        if DEVICE == "cpu":
            self.assertEqual(nsa_torch.explain(*(x.float() for x in (q, k, v, gates)), **SMALL).backend, "cpu")
        self.assertEqual(nsa_torch.explain(q, k, v, backend="plain").obstacle, 'backend="plain" was asked for')

    def test_errors(self):
        q, k, v, gates = tokens()
        for error, message, call in (
            (TypeError, "unknown setting windw; did you mean window?", lambda: nsa_torch.nsa_attention(q, k, v, windw=3)),
            (TypeError, "q must be float, double, half or bfloat16", lambda: nsa_torch.nsa_attention(q.long(), k, v, gates)),
            (TypeError, "k must be Double like q, got Float", lambda: nsa_torch.nsa_attention(q, k.float(), v, gates)),
            (ValueError, "top_n must be", lambda: nsa_torch.nsa_attention(q, k, v, gates, top_n=0)),
            (ValueError, "k must be on", lambda: nsa_torch.nsa_attention(q, k.to("meta"), v, gates)),
            (ValueError, "num_heads must be a multiple", lambda: nsa_torch.NSAttention(8, 4, 3)),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(error, message.replace("?", r"\?")):
                call()

    def test_another_torch_is_refused_in_a_sentence(self):
        code = "import torch; torch.__version__ = '2.9.1'; import nsa_torch"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertIn("ImportError: nsa-torch was built for torch 2.11, found torch 2.9.1: python -m pip install", run.stderr)


class Layer(unittest.TestCase):
    def test_cache_gives_the_rows_of_the_whole_call(self):
        for shared in (True, False):
            torch.manual_seed(3)
            layer = nsa_torch.NSAttention(12, 4, 2, head_dim=8, v_head_dim=6, shared_kv=shared, **SMALL).to(DEVICE).double()
            x = randn(2, 19, 12)
            with torch.no_grad():
                want, cache = layer(x), layer.make_cache(2, 19)
                rows = [layer(x[:, :11], cache=cache)] + [layer(x[:, t : t + 1], cache=cache) for t in range(11, 19)]
                torch.testing.assert_close(torch.cat(rows, 1), want, atol=1e-12, rtol=0)
                self.assertEqual(cache.num_tokens.tolist(), [19, 19])
                with self.assertRaisesRegex(ValueError, "page_table of sequence 0 must be wide enough"):
                    layer(randn(2, 64, 12), cache=cache)
                cache.truncate(0, 13), cache.truncate(1, 12)
                cache.truncate(0, 12)
                torch.testing.assert_close(layer(x[:, 12:], cache=cache), want[:, 12:], atol=1e-12, rtol=0)
                for tokens in (11, 20):
                    with self.assertRaisesRegex(ValueError, f"num_tokens of sequence 0 must be in 12..19, got {tokens} "):
                        cache.truncate(0, tokens)
                cache.reset(0)
                self.assertEqual(cache.num_tokens.tolist(), [0, 19])

    def test_trains_compiled(self):
        torch.manual_seed(3)
        layer = nsa_torch.NSAttention(12, 4, 2, head_dim=8, **SMALL).to(DEVICE).double()
        x = randn(2, 19, 12)
        want = torch.autograd.grad(layer(x).square().mean(), list(layer.parameters()))
        have = torch.autograd.grad(torch.compile(layer, fullgraph=True)(x).square().mean(), list(layer.parameters()))
        for a, b in zip(want, have):
            torch.testing.assert_close(a, b)


def loss_curve(attend, dtype, length, block, heads, dim, steps=25, width=64):
    """Losses of a model of one attention layer that learns one text; what attends has type `dtype`."""
    torch.manual_seed(9)
    text = torch.randint(32, (1, length + 1)).to(DEVICE)
    layers = dict(embed=torch.nn.Embedding(32, width), q=torch.nn.Linear(width, heads * dim), kv=torch.nn.Linear(width, 2 * dim),
                  gates=torch.nn.Linear(width, 3 * heads), out=torch.nn.Linear(heads * dim, width), head=torch.nn.Linear(width, 32))
    model = torch.nn.ModuleDict(layers).to(DEVICE)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=3e-3), []
    for _ in range(steps):
        x = model["embed"](text[:, :-1])
        q, (k, v) = model["q"](x).unflatten(-1, (heads, dim)), model["kv"](x).unflatten(-1, (2, 1, dim)).unbind(2)
        gates = model["gates"](x).sigmoid().unflatten(-1, (3, heads)).unbind(2)
        o = attend(*(y.to(dtype) for y in (q, k, v, *gates)), block_counts=4, block_size=block, window_size=block)
        logits = model["head"](x + model["out"](o.to(x.dtype).flatten(-2)))
        loss = torch.nn.functional.cross_entropy(logits[0], text[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class DropIn(unittest.TestCase):
    """parallel_nsa against tests/fla_semantics.py, forward and backward."""

    def compare(self, batch=2, length=37, packed=False, indices=None, gates=(True, True, True), kv_heads=2, **settings):
        torch.manual_seed(5)
        shapes = ((4, 8), (kv_heads, 8), (kv_heads, 6))
        q, k, v = (randn(batch, length, *shape).requires_grad_() for shape in shapes)
        names = ("g_cmp", "g_slc", "g_swa")
        made = {n: torch.rand(batch, length, 4, dtype=torch.float64, device=DEVICE).requires_grad_() for n in names}
        arguments = dict({n: made[n] if given else None for n, given in zip(names, gates)}, block_size=4, **settings)
        if packed:
            arguments["cu_seqlens"] = torch.tensor([0, 3, 3, 20, length], device=DEVICE)
        if indices is not None:
            arguments["block_indices"] = indices(batch, length, kv_heads)
        inputs = [q, k, v, *(made[n] for n, given in zip(names, gates) if given)]
        want, have = stated(q, k, v, **arguments), nsa_torch.parallel_nsa(q, k, v, **arguments)
        torch.testing.assert_close(have, want, atol=1e-12, rtol=1e-12)
        d_o = randn(*want.shape)
        for x, a, b in zip(("q", "k", "v", *names), *(torch.autograd.grad(o, inputs, d_o, allow_unused=True) for o in (want, have))):
            zero = torch.zeros(1, dtype=torch.float64, device=DEVICE)
            torch.testing.assert_close(zero if b is None else b, zero.expand_as(b) if a is None else a, atol=1e-11, rtol=1e-11, msg=x)

    def test_selects(self):
        self.compare(block_counts=4)
        self.compare(block_counts=3, window_size=6)
        self.compare(block_counts=4, window_size=1, kv_heads=1, gates=(True, False, True))
        self.compare(block_counts=5, window_size=6, scale=0.7)

    def test_packed(self):
        self.compare(batch=1, packed=True, block_counts=3, window_size=6)

    def test_given_blocks(self):
        def shuffled(batch, length, kv_heads):
            ids = torch.stack([torch.randperm(10)[:4] for _ in range(batch * length * kv_heads)])
            ids = torch.where(torch.rand(ids.shape) < 0.2, -1, ids)
            return ids.view(batch, length, kv_heads, 4).to(DEVICE)

        self.compare(indices=shuffled, gates=(False, True, True), window_size=3)
        self.compare(indices=shuffled, gates=(False, False, False))

    def test_same_loss_curve(self):
        """A model that trains with the statement in fp32, and with the drop-in in the type of its kernels."""
        on_gpu = DEVICE == "cuda"
        sizes = dict(length=192, block=32, heads=16, dim=64) if on_gpu else dict(length=48, block=8, heads=4, dim=8)
        want = loss_curve(stated, torch.float32, **sizes)
        have = loss_curve(nsa_torch.parallel_nsa, torch.bfloat16 if on_gpu else torch.float32, **sizes)
        print("loss curves:", [round(x, 4) for x in want], [round(x, 4) for x in have], file=sys.stderr)
        self.assertLess(want[-1], 0.8 * want[0])
        torch.testing.assert_close(torch.tensor(have), torch.tensor(want), rtol=0.01 if on_gpu else 1e-3, atol=0)

    def test_refused(self):
        q, k, v, _ = tokens()
        gate = torch.rand(2, 19, 4)
        for error, message, settings in (
            (NotImplementedError, "block_counts must be one int", dict(g_cmp=gate, block_counts=torch.ones(2, 19, 2))),
            (ValueError, "g_cmp or block_indices must be given", dict()),
            (ValueError, "block_counts must be at least 3", dict(g_cmp=gate, block_counts=2)),
            (ValueError, "q must have batch size 1", dict(g_cmp=gate, cu_seqlens=torch.tensor([0, 19]))),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(error, message):
                nsa_torch.parallel_nsa(q, k, v, **settings)


if __name__ == "__main__":
    unittest.main()
