"""How does the model of this tokenizer.json split the text?"""

from __future__ import annotations

import os
from typing import Any

from langchain_ctxwin.counting.local import LocalCounter
from langchain_ctxwin.errors import ConfigError

PROBE = "A probe: \ue000 \U0001f9ea"
"""A text with a character that no vocabulary has: a tokenizer that cannot take it would fail on a user's text."""


class TokenizerFileCounter(LocalCounter):
    """Counts with the tokenizer of a model, from the `tokenizer.json` that is published beside its weights.

    Setup:
        ```bash
        pip install langchain-ctxwin[exact]
        ```

    Key init args:
        path: a `tokenizer.json` as the Hugging Face `tokenizers` package reads it.
        family: whose framing constants are used: openai, anthropic, gemini, llama, qwen, deepseek, generic, ...

    Instantiate:
        ```python
        engine = ContextEngine(limits=model, counter=TokenizerFileCounter("models/tokenizer.json", family="llama"))
        ```

    Raises:
        ConfigError: the package is missing, the file cannot be read as a tokenizer, or the family is unknown.
    """

    def __init__(self, path: str | os.PathLike[str], *, family: str = "generic") -> None:
        tokenizer = _load(os.fspath(path))
        super().__init__(lambda text: len(tokenizer.encode(text, add_special_tokens=False)), family=family)
        self.path = path


def _load(path: str) -> Any:
    """The tokenizer, counting all of a text as text: files may ask to cut, to pad and to read special tokens."""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415  # optional
    except ImportError as error:
        raise ConfigError("reading a tokenizer.json needs a package: pip install langchain-ctxwin[exact]") from error
    try:
        tokenizer = Tokenizer.from_file(path)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        tokenizer.encode(PROBE, add_special_tokens=False)
    except Exception as error:  # the package raises nothing more specific
        raise ConfigError(f"{path} is no usable tokenizer.json: {error}") from error
    return tokenizer
