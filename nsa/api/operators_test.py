#!/usr/bin/env python3
"""The registered operators from Python: opcheck, gradcheck, torch.compile, autocast, export, AOTInductor, checkpointing,
DistributedDataParallel.

Usage: operators_test.py LIBNSA [cpu|cuda]
On cuda the calls have the sizes and the type that the kernels cover, and a training step is captured as a graph.
"""
import pathlib
import sys
import tempfile
import unittest

import torch
from torch.library import opcheck

LIBRARY = sys.argv.pop(1) if len(sys.argv) > 1 else None
DEVICE = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1] in ("cpu", "cuda") else "cpu"
SMALL = dict(block_size=4, block_stride=2, sel_block_size=4, top_n=4, window=5)
DTYPE, DK, DV = torch.float64, 8, 6
if DEVICE == "cuda":
    SMALL = dict(top_n=4, window=100)
    DTYPE, DK, DV = torch.bfloat16, 64, 64
# Tokens of a call for every one above: enough for several blocks on either device.
STRETCH = 16 if DEVICE == "cuda" else 1


def tensors(rows=(2, 19), dtype=DTYPE, heads=4, kv_heads=2, dk=DK, dv=DV, grad=True):
    torch.manual_seed(7)
    rows = (*rows[:-1], rows[-1] * STRETCH)
    shapes = ((heads, dk), (kv_heads, dk), (kv_heads, dv), (heads, 3))
    made = [torch.randn(*rows, *shape, dtype=torch.float64).to(DEVICE, dtype) for shape in shapes]
    return [x.requires_grad_(grad) for x in made]


def attention(q, k, v, gates, **settings):
    return torch.ops.nsa.attention_fwd(q, k, v, gates, **(SMALL | settings))[0]


class Layer(torch.nn.Module):
    """A user's own layer around the operator."""

    def __init__(self, dim=12, heads=4, kv_heads=2, dk=8, dv=6):
        super().__init__()
        torch.manual_seed(3)
        widths = {"q": (heads, dk), "k": (kv_heads, dk), "v": (kv_heads, dv), "gates": (heads, 3)}
        self.shapes = list(widths.values())
        self.projections = torch.nn.ModuleList(torch.nn.Linear(dim, h * d, dtype=torch.float64) for h, d in self.shapes)

    def forward(self, x):
        parts = [p(x).unflatten(-1, shape) for p, shape in zip(self.projections, self.shapes)]
        return attention(*parts)


def rows_of_layer():
    return torch.randn(4, 17, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def train_rank(rank, library, folder):
    """One of two ranks: the gradient of the mean over its half of the rows."""
    torch.ops.load_library(library)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    layer = torch.nn.parallel.DistributedDataParallel(Layer())
    layer(rows_of_layer()[2 * rank : 2 * rank + 2]).square().mean().backward()
    if rank == 0:
        torch.save([p.grad for p in layer.module.parameters()], f"{folder}/gradients")
    torch.distributed.destroy_process_group()


class Pages:
    """Caches of a caller's own: pages in a shuffled order, int32 tables, some pages and `spare` slots to spare."""

    def __init__(self, batch, capacity, page=8, dtype=DTYPE, heads=2, dk=DK, dv=DV, spare=0):
        stride, size, window = SMALL.get("block_stride", 16), SMALL.get("block_size", 32), SMALL["window"]
        blocks = max(1, (capacity - size) // stride + 1)
        torch.manual_seed(11)
        self.page_table, pages = self.table(batch, -(-capacity // page))
        cmp_page = page // 2
        self.cmp_page_table, cmp_pages = self.table(batch, -(-blocks // cmp_page))
        self.num_tokens = torch.zeros(batch, dtype=torch.int32, device=DEVICE)
        # NaN where nothing was written: a read of it would be seen.
        memory = lambda *rows: [torch.full((*rows, heads, d), torch.nan, dtype=dtype, device=DEVICE) for d in (dk, dv)]
        self.memory = [*memory(pages, page), *memory(cmp_pages, cmp_page), *memory(batch, window + spare)]
        self.memory += memory(batch, size + spare)

    def table(self, batch, columns):
        pages = batch * columns + 3
        return torch.randperm(pages)[: batch * columns].view(batch, columns).to(DEVICE, torch.int32), pages

    def arguments(self):
        return (*self.memory, self.page_table, self.cmp_page_table, self.num_tokens)

    def decode(self, *tokens, **settings):
        return torch.ops.nsa.decode_(*tokens, *self.arguments(), **(SMALL | settings))


class Projection(unittest.TestCase):
    """One tensor of q, k and v."""

    def inputs(self, grad=True, **named):
        q, k, v, gates = tensors(grad=False, **named)
        qkv = torch.cat([x.flatten(2) for x in (q, k, v)], -1)
        return [x.requires_grad_(grad) for x in (qkv, gates)]

    def call(self, qkv, gates, heads=(4, 2), dv=DV, **settings):
        return torch.ops.nsa.attention_qkvpacked_fwd(qkv, gates, *heads, dv, **(SMALL | settings))[0]

    def test_is_the_call_of_its_parts(self):
        qkv, gates = self.inputs()
        parts = [x.requires_grad_() for x in tensors(grad=False)]
        o, want = self.call(qkv, gates), attention(*parts)
        self.assertTrue(torch.equal(o, want))
        d_qkv, d_gates = torch.autograd.grad(o.sum(), (qkv, gates))
        d_q, d_k, d_v, d_gates_want = torch.autograd.grad(want.sum(), parts)
        self.assertTrue(torch.equal(d_qkv, torch.cat([x.flatten(2) for x in (d_q, d_k, d_v)], -1)))
        self.assertTrue(torch.equal(d_gates, d_gates_want))

    def test_opcheck(self):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            for grad in (False, True):
                with self.subTest(dtype=dtype, grad=grad):
                    inputs = self.inputs(dtype=dtype, grad=grad)
                    opcheck(torch.ops.nsa.attention_qkvpacked_fwd, (*inputs, 4, 2, DV), SMALL)
        inputs = self.inputs(grad=False, dv=DK)
        opcheck(torch.ops.nsa.attention_qkvpacked_fwd, (*inputs, 4, 2), SMALL | dict(keep=True))
        o, ids, kept = torch.ops.nsa.attention_qkvpacked_fwd(*inputs, 4, 2, **SMALL, keep=True)
        for wanted in ([True] * 2, [True, False], [False, True]):
            arguments = (torch.randn_like(o), *inputs, 4, 2, None, *[None] * 6, ids, wanted + [False] * 6)
            opcheck(torch.ops.nsa.attention_qkvpacked_bwd, arguments, dict(SMALL, kept=kept))

    def test_gradcheck(self):
        settings = dict(SMALL, gate="sigmoid")
        if DEVICE == "cuda":
            settings |= dict(block_size=32, block_stride=16, sel_block_size=32)
        inputs = self.inputs(rows=(1, 9), dtype=torch.float64, heads=2, kv_heads=1, dk=4, dv=4)
        ids = torch.ops.nsa.attention_qkvpacked_fwd(*inputs, 2, 1, **settings)[1]
        call = lambda *x: self.call(*x, heads=(2, 1), dv=4, block_idx=ids, **settings)
        self.assertTrue(torch.autograd.gradcheck(call, inputs, fast_mode=DEVICE == "cuda"))

    def test_compiled(self):
        for dynamic in (False, True):
            compiled = torch.compile(self.call, fullgraph=True, dynamic=dynamic)
            for rows in ((2, 19), (2, 24)):
                inputs = self.inputs(rows=rows)
                eager, fast = self.call(*inputs), compiled(*inputs)
                self.assertTrue(torch.equal(eager, fast))
                for a, b in zip(torch.autograd.grad(eager.sum(), inputs), torch.autograd.grad(fast.sum(), inputs)):
                    self.assertTrue(torch.equal(a, b))

    def test_autocast(self):
        qkv, gates = self.inputs(dtype=torch.float32)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            o = self.call(qkv, gates)
        self.assertTrue(torch.equal(o, self.call(qkv.bfloat16(), gates)))
        o.float().sum().backward()
        self.assertEqual(qkv.grad.dtype, torch.float32)

    def test_refused(self):
        qkv, gates = self.inputs()
        for device in (DEVICE, "meta"):
            x, logits = qkv.to(device), gates.to(device)
            for error, message, call in (
                (ValueError, "qkv must be .* for which dk is no whole number", lambda: self.call(x[..., 1:], logits)),
                (ValueError, r"qkv must be of rank 3 \[B, S, num_heads", lambda: self.call(x[0], logits)),
                (ValueError, "num_kv_heads must be at least 1, got 0", lambda: self.call(x, logits, heads=(4, 0))),
                (ValueError, "v_head_dim must be at least 1, got 0", lambda: self.call(x, logits, dv=0)),
            ):
                with self.subTest(device=device, message=message), self.assertRaisesRegex(error, message):
                    call()
        with self.assertRaisesRegex(NotImplementedError, "double backward"):
            torch.autograd.grad(self.call(qkv, gates).sum(), qkv, create_graph=True)


class Decode(unittest.TestCase):
    def tokens(self, **named):
        return tensors(rows=(2, 19), grad=False, **named)

    def test_steps_behind_a_prefill(self):
        tokens = self.tokens()
        total = tokens[0].shape[1]
        pages, first = Pages(2, total), total - 8
        o = [pages.decode(*(x[:, :first] for x in tokens))]
        o += [pages.decode(*(x[:, t : t + 1] for x in tokens)) for t in range(first, total)]
        want = attention(*tokens)
        tolerance = dict(atol=1e-12, rtol=0) if DEVICE == "cpu" else dict(atol=0.02, rtol=0.02)
        torch.testing.assert_close(torch.cat(o, 1), want, **tolerance)
        self.assertEqual(pages.num_tokens.tolist(), [total, total])

    def test_what_it_overwrites_is_not_read_by_a_backward_pass(self):
        tokens, pages = self.tokens(), Pages(2, 19 * STRETCH)
        weight = torch.ones((), dtype=DTYPE, device=DEVICE, requires_grad=True)
        for memory in pages.memory:
            y = (memory * weight).sum()
            pages.num_tokens.zero_()
            with torch.no_grad():
                pages.decode(*(x[:, :1] for x in tokens))
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                y.backward()
        version = pages.num_tokens._version, pages.page_table._version
        with torch.inference_mode():
            pages.decode(*(x[:, 1:2] for x in tokens))
        pages.decode(*(x[:, 2:3] for x in tokens))
        self.assertGreater(pages.num_tokens._version, version[0])
        self.assertEqual(pages.page_table._version, version[1])

    def test_steps_of_several_tokens(self):
        tokens = self.tokens()
        total = tokens[0].shape[1]
        want, first = attention(*tokens), total - 8
        tolerance = dict(atol=1e-12, rtol=0) if DEVICE == "cpu" else dict(atol=0.02, rtol=0.02)
        for spare in (0, 7):
            pages = Pages(2, total, spare=spare)
            pages.decode(*(x[:, :first] for x in tokens))
            for t in range(first, total, 4):
                o = pages.decode(*(x[:, t : t + 4] for x in tokens))
                torch.testing.assert_close(o, want[:, t : t + 4], **tolerance)
            self.assertEqual(pages.num_tokens.tolist(), [total, total])

    def test_lengths(self):
        tokens = self.tokens()
        pages = Pages(2, tokens[0].shape[1])
        o, want = pages.decode(*tokens, lengths=[7, 3]), attention(*tokens)
        self.assertEqual(pages.num_tokens.tolist(), [7, 3])
        torch.testing.assert_close(o[1, :3], want[1, :3])
        self.assertEqual(o[1, 3:].abs().max().item(), 0)

    def test_opcheck(self):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            tokens = self.tokens(dtype=dtype)
            pages = Pages(2, tokens[0].shape[1], dtype=dtype)
            pages.decode(*(x[:, :9] for x in tokens))
            with self.subTest(dtype=dtype):
                opcheck(torch.ops.nsa.decode_, (*(x[:, 9:10] for x in tokens), *pages.arguments()), SMALL)

    def test_compiled(self):
        tokens, pages, same = self.tokens(), Pages(2, 19 * STRETCH), Pages(2, 19 * STRETCH)
        compiled = torch.compile(lambda *x: same.decode(*x), fullgraph=True)
        for begin, end in ((0, 9), (9, 10), (10, 11)):
            part = [x[:, begin:end] for x in tokens]
            self.assertTrue(torch.equal(pages.decode(*part), compiled(*part)))
        self.assertTrue(torch.equal(pages.num_tokens, same.num_tokens))

    if DEVICE == "cuda":

        def test_graph(self):
            q, k, v, gates = self.tokens()
            total = q.shape[1]
            want, first = attention(q, k, v, gates), total - 40
            for count in (1, 4, 8):
                pages = Pages(2, total, page=16, spare=7)
                pages.decode(*(x[:, :first] for x in (q, k, v, gates)))
                step = [x[:, :count].clone() for x in (q, k, v, gates)]
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    o = pages.decode(*step)
                for t in range(first, total, count):
                    for to, x in zip(step, (q, k, v, gates)):
                        to.copy_(x[:, t : t + count])
                    graph.replay()
                    torch.testing.assert_close(o, want[:, t : t + count], atol=0.02, rtol=0.02)
                self.assertEqual(pages.num_tokens.tolist(), [total, total])

        def test_graph_of_what_is_no_step(self):
            tokens, pages = self.tokens(), Pages(2, 19 * STRETCH)
            pages.decode(*(x[:, :3] for x in tokens))
            for message, call in (
                ("axis 1 of q.* must be 1 to 8, got 9", lambda: pages.decode(*(x[:, 3:12] for x in tokens))),
                ("lengths of a call that a CUDA graph captures", lambda: pages.decode(*(x[:, 3:4] for x in tokens), lengths=[1, 0])),
            ):
                with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                    with torch.cuda.graph(torch.cuda.CUDAGraph()):
                        call()

    def test_autocast(self):
        tokens, pages = self.tokens(dtype=torch.float32), Pages(2, 19 * STRETCH, dtype=torch.bfloat16)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            self.assertEqual(pages.decode(*tokens).dtype, torch.bfloat16)

    def test_refused(self):
        tokens, pages = self.tokens(), Pages(2, 19 * STRETCH)
        first = [x[:, :1] for x in tokens]
        with self.assertRaisesRegex(NotImplementedError, "q must not require a gradient"):
            pages.decode(first[0].clone().requires_grad_(), *first[1:])
        with self.assertRaisesRegex(TypeError, "page_table must be int32 or int64, got Float"):
            bad = Pages(2, 19 * STRETCH)
            bad.page_table = bad.page_table.float()
            bad.decode(*tokens)
        for name, value, message in (
            ("page_table", pages.page_table[:1], r"page_table must be \[A, pages\] = \[2, any\], got shape \[1, "),
            ("page_table", torch.full_like(pages.page_table, -1), "page_table of sequence 0 must be a page in"),
            ("cmp_page_table", pages.cmp_page_table[:, :0], "cmp_page_table of sequence 0 must be wide enough"),
            ("num_tokens", pages.num_tokens - 1, "num_tokens of sequence 0 must be at least 0, got -1"),
        ):
            bad = Pages(2, 19 * STRETCH)
            setattr(bad, name, value)
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                bad.decode(*tokens)
        bad = Pages(2, 19 * STRETCH)
        bad.memory[4:6] = [x[:, 1:].contiguous() for x in bad.memory[4:6]]
        with self.assertRaisesRegex(ValueError, r"slots \(axis 1\) of k_window must be at least"):
            bad.decode(*first)
        self.assertEqual(bad.num_tokens.tolist(), [0, 0])


class Operators(unittest.TestCase):
    def test_opcheck(self):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            for grad in (False, True):
                with self.subTest(dtype=dtype, grad=grad):
                    opcheck(torch.ops.nsa.attention_fwd, tensors(dtype=dtype, grad=grad), SMALL)
        for settings in (
            dict(keep=True),
            dict(keep=True, rope="none"),
            dict(scale_cmp=0.3, scale_sel=0.2, scale_win=0.5),
            dict(window=0),
            dict(rope_pairs="half_split"),
        ):
            opcheck(torch.ops.nsa.attention_fwd, tensors(grad=False), SMALL | settings)
        packed = tensors(rows=(23,))
        offsets = torch.tensor([0, 3, 3, 20, 23], dtype=torch.int32, device=DEVICE) * STRETCH
        for settings in ({}, dict(max_seqlen=17 * STRETCH), dict(keep=True)):
            opcheck(torch.ops.nsa.attention_varlen_fwd, (*packed, offsets), SMALL | settings)
        q, k, v, gates = tensors(grad=False)
        o, ids, kept = torch.ops.nsa.attention_fwd(q, k, v, gates, **SMALL, keep=True)
        wanted = [True, False, True, True] + [False] * 6
        opcheck(
            torch.ops.nsa.attention_bwd,
            (torch.randn_like(o), q, k, v, gates, None, None, None, None, None, None, ids, wanted),
            dict(SMALL, kept=kept),
        )

    def test_gradcheck(self):
        settings = dict(SMALL, gate="sigmoid")
        if DEVICE == "cuda":
            settings |= dict(block_size=32, block_stride=16, sel_block_size=32)
        scales = dict(scale_cmp=0.8, scale_sel=0.3, scale_win=1.5)
        for own in ({}, scales, dict(window=0), dict(rope_pairs="half_split")):
            with self.subTest(**own):
                self.check_gradients(settings | own)

    def check_gradients(self, settings):
        q, k, v, gates = tensors(rows=(1, 9), dtype=torch.float64, heads=2, kv_heads=1, dk=4, dv=4)
        ids = torch.ops.nsa.attention_fwd(q, k, v, gates, **settings)[1]
        self.assertTrue(
            torch.autograd.gradcheck(
                lambda *x: torch.ops.nsa.attention_fwd(*x, block_idx=ids, **settings)[0],
                (q, k, v, gates),
                fast_mode=DEVICE == "cuda",
            )
        )

    def check_compiled(self, dynamic):
        compiled = torch.compile(attention, fullgraph=True, dynamic=dynamic)
        for rows in ((2, 19), (2, 24)):
            inputs = tensors(rows=rows)
            eager, fast = attention(*inputs), compiled(*inputs)
            self.assertTrue(torch.equal(eager, fast))
            for a, b in zip(torch.autograd.grad(eager.sum(), inputs), torch.autograd.grad(fast.sum(), inputs)):
                self.assertTrue(torch.equal(a, b))

    def test_compile_static(self):
        self.check_compiled(dynamic=False)

    def test_compile_dynamic(self):
        self.check_compiled(dynamic=True)

    def test_export(self):
        class Call(torch.nn.Module):
            def forward(self, q, k, v, gates):
                return attention(q, k, v, gates)

        inputs = tuple(tensors(grad=False))
        exported = torch.export.export(Call(), inputs)
        self.assertTrue(torch.equal(exported.module()(*inputs), attention(*inputs)))

    def test_aot_inductor(self):
        class Call(torch.nn.Module):
            def forward(self, q, k, v, gates):
                return attention(q, k, v, gates)

        inputs = tuple(tensors(grad=False))
        with tempfile.TemporaryDirectory() as folder:
            path = torch._inductor.aoti_compile_and_package(
                torch.export.export(Call(), inputs), package_path=str(pathlib.Path(folder) / "call.pt2")
            )
            loaded = torch._inductor.aoti_load_package(path)
            self.assertTrue(torch.equal(loaded(*inputs), attention(*inputs)))

    if DEVICE == "cpu":

        def test_data_parallel(self):
            layer = Layer()
            layer(rows_of_layer()).square().mean().backward()
            with tempfile.TemporaryDirectory() as folder:
                torch.multiprocessing.spawn(train_rank, args=(LIBRARY, folder), nprocs=2)
                for p, grad in zip(layer.parameters(), torch.load(f"{folder}/gradients")):
                    self.assertTrue(torch.allclose(p.grad, grad, rtol=1e-12, atol=1e-12))
    else:

        def test_graph(self):
            inputs = tensors()

            def step():
                o = attention(*inputs)
                return (o, *torch.autograd.grad(o.sum(), inputs))

            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                replayed = step()
            with torch.no_grad():
                for x in inputs:
                    x.copy_(torch.randn_like(x))
            eager = step()
            graph.replay()
            for a, b in zip(replayed, eager):
                self.assertTrue(torch.equal(a, b))

    def test_autocast(self):
        inputs = tensors(dtype=torch.float32)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            o = attention(*inputs)
        self.assertEqual(o.dtype, torch.bfloat16)
        want = attention(*[x.bfloat16() for x in inputs[:3]], inputs[3])
        self.assertTrue(torch.equal(o, want))
        o.float().sum().backward()
        self.assertEqual(inputs[0].grad.dtype, torch.float32)
        outside = [x.grad.clone() for x in inputs]
        for x in inputs:
            x.grad = None
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            attention(*inputs).float().sum().backward()
        for x, grad in zip(inputs, outside):
            self.assertTrue(torch.equal(x.grad, grad))

    def test_checkpoint(self):
        inputs = tensors()
        plain = torch.autograd.grad(attention(*inputs).sum(), inputs)
        saved = torch.utils.checkpoint.checkpoint(attention, *inputs, use_reentrant=False)
        for a, b in zip(plain, torch.autograd.grad(saved.sum(), inputs)):
            self.assertTrue(torch.equal(a, b))

    def test_inference_mode(self):
        inputs = tensors(grad=False)
        with torch.inference_mode():
            o = attention(*inputs)
        self.assertTrue(torch.equal(o, attention(*inputs)))

    def test_refusals(self):
        q, k, v, gates = tensors(grad=False)
        with self.assertRaisesRegex(ValueError, "top_n must be"):
            attention(q, k, v, gates, top_n=0)
        with self.assertRaisesRegex(ValueError, "scale_win must be a positive finite number, got 0"):
            attention(q, k, v, gates, scale_win=0.0)
        with self.assertRaisesRegex(ValueError, "scale_win must be a positive finite number, got 0"):
            attention(*(x.to("meta") for x in (q, k, v, gates)), scale_win=0.0)
        with self.assertRaisesRegex(ValueError, "rope_pairs must be one of interleaved, half_split, got 'neox'"):
            attention(q, k, v, gates, rope_pairs="neox")
        with self.assertRaisesRegex(ValueError, "backend must be auto, fused or plain, got 'fast'"):
            attention(q, k, v, gates, backend="fast")
        with self.assertRaisesRegex(ValueError, r"v must be \[B, S, Hkv, dv\]"):
            attention(q, k, v[:, :11], gates)
        with self.assertRaisesRegex(ValueError, r"v must be \[B, S, Hkv, dv\]"):
            attention(*(x.to("meta") for x in (q, k, v[:, :11], gates)))
        ids = torch.zeros(2, 3, 2, 4, dtype=torch.int32, device="meta")
        with self.assertRaisesRegex(ValueError, r"block_idx must be \[B, S, Hkv, K\]"):
            attention(*(x.to("meta") for x in (q, k, v, gates)), block_idx=ids)
        packed = tensors(rows=(23,), grad=False)
        offsets = torch.tensor([0, 3, 3, 20, 23], dtype=torch.int32, device=DEVICE) * STRETCH
        for device, longest, message in (
            (DEVICE, 16 * STRETCH, f"document 2 of cu_seqlens must be of at most max_seqlen = {16 * STRETCH} tokens, got "),
            (DEVICE, -1, "max_seqlen must be at least 0, got -1"),
            ("meta", -1, "max_seqlen must be at least 0, got -1"),
        ):
            with self.subTest(device=device, longest=longest), self.assertRaisesRegex(ValueError, message):
                inputs = [x.to(device) for x in packed]
                bounds = offsets.to("meta" if device == "meta" else "cpu")  # on the host they are always read
                torch.ops.nsa.attention_varlen_fwd(*inputs, bounds, **SMALL, max_seqlen=longest)
        # Lengths of Meta tensors are unknown.
        o = torch.ops.nsa.attention_varlen_fwd(*(x.to("meta") for x in (*packed, offsets)), **SMALL, max_seqlen=16)[0]
        self.assertEqual(o.shape, (23 * STRETCH, 4, DV))
        with self.assertRaisesRegex(NotImplementedError, "fewer queries than keys are not covered"):
            attention(q[:, :3], k, v, gates[:, :3])
        x = tensors(rows=(1, 9))
        o = attention(*x)
        with self.assertRaisesRegex(NotImplementedError, "double backward"):
            torch.autograd.grad(o.sum(), x, create_graph=True)


if __name__ == "__main__":
    if LIBRARY is None:
        sys.exit(__doc__)
    torch.ops.load_library(LIBRARY)
    unittest.main()
