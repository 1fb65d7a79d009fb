"""Decoding token by token through caches."""
from typing import Optional, Sequence

import torch
from torch import Tensor
from typing_extensions import Unpack

from nsa_torch.attention import equal_gates
from nsa_torch.settings import Settings, check

decode_op = torch.ops.nsa.decode_.default
DEFAULTS = dict(block_size=32, block_stride=16, window=512)
SPARE_SLOTS = 7  # of rings: a step of 8 tokens is one launch, and can be taken back


class DecodeCache:
    """Keys and values of a batch of sequences, each with its own length; all memory is taken at once.

        cache = DecodeCache(2, 4096, num_kv_heads=2, head_dim=64, dtype=torch.bfloat16, device="cuda")
        o = cache.decode(q, k, v, gate_logits)      # [B, S, ...]: a prefill
        o = cache.decode(q, k, v, gate_logits)      # [B, 1, ...]: a step
        o = cache.decode(q, k, v, gate_logits)      # [B, 4, ...]: a step of drafted tokens ...
        cache.truncate(0, accepted)                 # ... of which sequence 0 keeps some

    Caches and tables are tensors (k_pages, ..., num_tokens) that another program may own instead: see the arguments of
    torch.ops.nsa.decode_.
    """

    def __init__(
        self,
        num_sequences: int,
        capacity: int,
        *,
        num_kv_heads: int,
        head_dim: int,
        v_head_dim: Optional[int] = None,
        dtype: torch.dtype = torch.float32,
        device: "torch.device | str" = "cpu",
        page_size: int = 64,
        **settings: Unpack[Settings],
    ) -> None:
        """Room for `capacity` tokens in each sequence; settings as for nsa_attention."""
        check("DecodeCache", settings)
        for name, value in dict(num_sequences=num_sequences, capacity=capacity, page_size=page_size).items():
            if value < 1:
                raise ValueError(f"DecodeCache: {name} must be at least 1, got {value}")
        self.settings = settings
        own = DEFAULTS | settings
        blocks = max(1, (capacity - own["block_size"]) // own["block_stride"] + 1)
        dims = (head_dim, v_head_dim or head_dim)

        def memory(*rows: int) -> list[Tensor]:
            return [torch.empty(*rows, num_kv_heads, dim, dtype=dtype, device=device) for dim in dims]

        def table(rows: int) -> Tensor:
            columns = -(-rows // page_size)
            return torch.arange(num_sequences * columns, dtype=torch.int32, device=device).view(num_sequences, columns)

        self.page_table, self.cmp_page_table = table(capacity), table(blocks)
        self.k_pages, self.v_pages = memory(self.page_table.numel(), page_size)
        self.k_cmp_pages, self.v_cmp_pages = memory(self.cmp_page_table.numel(), page_size)
        # The ring has to cover what the tables do.
        covered = self.page_table.shape[1] * page_size
        self.k_window, self.v_window = memory(num_sequences, max(1, min(own["window"] + SPARE_SLOTS, covered)))
        self.k_recent, self.v_recent = memory(num_sequences, own["block_size"] + SPARE_SLOTS)
        self.num_tokens = torch.zeros(num_sequences, dtype=torch.int32, device=device)
        self.longest = [0] * num_sequences  # tokens that a sequence had before some were taken back

    def decode(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gates: Optional[Tensor] = None,
        *,
        k_sel: Optional[Tensor] = None,
        v_sel: Optional[Tensor] = None,
        k_win: Optional[Tensor] = None,
        v_win: Optional[Tensor] = None,
        block_idx: Optional[Tensor] = None,
        lengths: Optional[Sequence[int]] = None,
    ) -> Tensor:
        """Appends S tokens to every sequence (row b: its first lengths[b]) and attends with them.

        Tensors and result as for nsa_attention, B sequences; no gradients. Raises ValueError, before anything changes,
        where a sequence has no room.
        """
        gates = equal_gates(q, self.settings) if gates is None else gates
        memory = (self.k_pages, self.v_pages, self.k_cmp_pages, self.v_cmp_pages)
        rings = (self.k_window, self.v_window, self.k_recent, self.v_recent)
        tables = (self.page_table, self.cmp_page_table, self.num_tokens)
        branches = dict(k_sel=k_sel, v_sel=v_sel, k_win=k_win, v_win=v_win)
        more = dict(block_idx=block_idx, lengths=lengths)
        return decode_op(q, k, v, gates, *memory, *rings, *tables, **branches, **more, **self.settings)

    def reset(self, sequence: int) -> None:
        """Empties a sequence."""
        self.num_tokens[sequence] = self.longest[sequence] = 0

    def truncate(self, sequence: int, num_tokens: int) -> None:
        """Takes the last tokens of a sequence back, so that it has `num_tokens`: drafted ones that were not accepted.

        At most 7 of the longest that it was; raises ValueError for more. Waits for the device.
        """
        have = int(self.num_tokens[sequence])
        self.longest[sequence] = max(self.longest[sequence], have)
        least = max(0, self.longest[sequence] - SPARE_SLOTS)
        if not least <= num_tokens <= have:
            raise ValueError(
                f"DecodeCache: num_tokens of sequence {sequence} must be in {least}..{have}, "
                f"got {num_tokens} (reset it and prefill again)"
            )
        self.num_tokens[sequence] = num_tokens
