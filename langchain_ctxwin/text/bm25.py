"""BM25 ranking, imported on first use: numpy takes longer to import than this package."""

from __future__ import annotations

import warnings
from typing import Any


def bm25_library() -> Any:
    """Return the module `bm25s`."""
    with warnings.catch_warnings():
        # Its progress bar, which is not used, warns in notebooks that lack a widget package.
        warnings.simplefilter("ignore")
        import bm25s  # type: ignore[import-untyped]  # noqa: PLC0415  # see above
    return bm25s
