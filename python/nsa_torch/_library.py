"""Loads the library with the registered operators, or states in one sentence why it cannot."""
import importlib.metadata
import pathlib

import torch

FOLDER = pathlib.Path(__file__).parent
LIBRARY = FOLDER / "lib/nsa/libnsa.so"
CHECKOUT = FOLDER.parent.parent / "build/release/lib/libnsa.so"  #: where python/ of a checkout is on PYTHONPATH
TORCH = "2.11"


def load() -> str:
    """Registers torch.ops.nsa.*; returns the version of the package."""
    if not torch.__version__.startswith(f"{TORCH}."):
        raise ImportError(
            f"nsa-torch was built for torch {TORCH}, found torch {torch.__version__}: python -m pip install 'torch=={TORCH}.*'"
        )
    library = LIBRARY if LIBRARY.exists() or not CHECKOUT.exists() else CHECKOUT
    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        remedy = "python -m pip install --force-reinstall nsa-torch"
        if torch.version.cuda is None:
            remedy = f"this torch has no CUDA libraries; python -m pip install 'torch=={TORCH}.*' from the default index has"
        raise ImportError(f"nsa-torch: {library} does not load ({error}): {remedy}") from None
    return importlib.metadata.version("nsa-torch") if library == LIBRARY else "of a checkout"
