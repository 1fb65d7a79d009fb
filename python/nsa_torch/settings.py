"""The settings of a call: sizes and choices that are no tensors."""
import difflib

from typing_extensions import TypedDict


class Settings(TypedDict, total=False):
    """Symbols as in the paper; defaults are those of the operators."""

    block_size: int  #: l, tokens a compressed block covers (32)
    block_stride: int  #: d, tokens from one compressed block to the next (16)
    sel_block_size: int  #: l', tokens of a selection block, a multiple of d (64)
    top_n: int  #: n, selected blocks a query, forced ones included (16)
    num_initial: int  #: forced blocks at the start (1)
    num_local: int  #: forced blocks at the end, the current one included (2)
    window: int  #: w, keys of the window branch, the query's own included (512); 0: no window branch
    gate: str  #: how gates are made of their logits: softmax (default), sigmoid, or none: gates are given
    rope: str  #: before_pool (default), block_start, or none: q and k are rotated already
    rope_base: float  #: theta (10000)
    rope_pairs: str  #: interleaved (default): columns 2m, 2m + 1 turn together; half_split: m, m + dk/2 (NeoX)
    scale_cmp: float  #: factor of the logits of the compressed branch (1 / sqrt(dk)); so for the two others
    scale_sel: float
    scale_win: float
    backend: str  #: auto (default), fused: the CUDA kernels, plain: compositions of PyTorch operators
    strict: bool  #: with backend fused: an error where the kernels do not cover the call (False)


def check(function: str, settings: dict) -> None:
    """Raises TypeError for a name that no setting has."""
    for name in settings:
        if name not in Settings.__annotations__:
            close = difflib.get_close_matches(name, Settings.__annotations__, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; settings are {', '.join(Settings.__annotations__)}"
            raise TypeError(f"{function}: unknown setting {name}{hint}")
