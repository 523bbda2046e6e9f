"""Counts every text exactly, by the model's own tokenizer on this machine; nothing is downloaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, ClassVar

from langchain_core.messages import MessageLikeRepresentation

from langchain_ctxwin.core.tokens import request_tokens
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.errors import ConfigError

# Family of the framing constants by how the name of an encoding begins.
FAMILIES = {"o200k": "openai", "cl100k": "cl100k", "llama": "llama", "qwen": "qwen"}
# A text with a character that no vocabulary has: a tokenizer that cannot take it would fail on a user's text.
PROBE = "A probe: \ue000 \U0001f9ea"


class LocalCounter:
    """Counts every text with a tokenizer; framing, tool structure and media by the constants of a family.

    What a provider adds around the text is published nowhere, so a request may be off by a few tokens a message.
    Texts of any kind are counted: special tokens as plain text, lone surrogates as the replacement character.

    Raises:
        ConfigError: the family is unknown.
    """

    exact: ClassVar[bool] = True

    def __init__(self, count: Callable[[str], int], *, family: str) -> None:
        if family not in FRAMING:
            raise ConfigError(f"family={family!r} is unknown: use one of {', '.join(sorted(FRAMING))}")
        self.family = family
        self._count = count

    def __call__(self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None) -> int:
        """Return the tokens of a request."""
        return ceil(request_tokens(messages, tools, FRAMING[self.family], self.count_text))

    def count_text(self, text: str) -> int:
        """Return the tokens of a plain text, without any framing."""
        try:
            text.encode()
        except UnicodeEncodeError:  # what arrives: surrogates in pairs are one character, lone ones are replaced
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return self._count(text) if text else 0


class VocabularyCounter(LocalCounter):
    """Counts with a published vocabulary, one of those that come in quicktok's wheel.

    Setup:
        ```bash
        pip install langchain-ctxwin[exact]
        ```

    Key init args:
        encoding: `o200k_base`, `o200k_harmony`, `cl100k_base` and two more in quicktok's wheel, or one imported there.
        family: whose framing constants are used; by default the one that the encoding's name implies.

    Instantiate:
        ```python
        engine = ContextEngine(limits=model, counter=VocabularyCounter("o200k_base"))
        ```

    Raises:
        ConfigError: quicktok is not installed, the encoding is not on this machine, or the family unknown.

    Examples:
        >>> VocabularyCounter("o200k_base").count_text("How many tokens is this?")
        6
    """

    def __init__(self, encoding: str, *, family: str | None = None) -> None:
        try:
            import quicktok  # noqa: PLC0415  # optional
        except ImportError as error:
            raise ConfigError("exact counts need a tokenizer: pip install langchain-ctxwin[exact]") from error
        try:
            count = quicktok.get_encoding(encoding).count
        except (RuntimeError, TypeError) as error:  # an unknown name, and what is no name
            bundled = ", ".join(sorted(set(quicktok.MODEL_TO_ENCODING.values())))
            raise ConfigError(
                f"encoding={encoding!r} is not on this machine: use one of {bundled}, or import it into quicktok"
            ) from error
        implied = (family for start, family in FAMILIES.items() if encoding.startswith(start))
        super().__init__(count, family=family or next(implied, "generic"))
        self.encoding = encoding


class TokenizerFileCounter(LocalCounter):
    """Counts with the tokenizer of a model, from the `tokenizer.json` that is published beside its weights.

    All of a text counts as text, also where the file asks to cut, to pad and to read special tokens.

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
        try:
            from tokenizers import Tokenizer  # noqa: PLC0415  # optional
        except ImportError as error:
            raise ConfigError(
                "reading a tokenizer.json needs a package: pip install langchain-ctxwin[exact]"
            ) from error
        try:
            tokenizer = Tokenizer.from_file(os.fspath(path))
            tokenizer.no_truncation()
            tokenizer.no_padding()
            tokenizer.encode_special_tokens = True
            tokenizer.encode(PROBE, add_special_tokens=False)
        except Exception as error:  # the package raises nothing more specific
            raise ConfigError(f"{os.fspath(path)} is no usable tokenizer.json: {error}") from error
        super().__init__(lambda text: len(tokenizer.encode(text, add_special_tokens=False)), family=family)
        self.path = path
