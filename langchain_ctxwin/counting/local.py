"""Counts every text exactly, by the model's own tokenizer on this machine; nothing is downloaded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

from langchain_core.messages import MessageLikeRepresentation

from langchain_ctxwin.core.tokens import request_tokens
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.errors import ConfigError

CACHE_VARIABLE = "TIKTOKEN_CACHE_DIR"
"""Where tiktoken keeps the files that it has downloaded, when the user says where."""

CACHE_FILES = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}
"""Name and SHA-256 of tiktoken's cache file by encoding; tiktoken would download a file that is missing or differs."""

FAMILIES = {"o200k": "openai", "cl100k": "cl100k", "llama": "llama", "qwen": "qwen"}
"""Family of the framing constants by how the name of an encoding begins."""

PROBE = "A probe: \ue000 \U0001f9ea"
"""A text with a character that no vocabulary has: a tokenizer that cannot take it would fail on a user's text."""

Count = Callable[[str], int]
"""Tokens of a text that is valid Unicode."""


class LocalCounter:
    """Counts every text with a tokenizer; framing, tool structure and media by the constants of a family.

    What a provider adds around the text is published nowhere, so a request may be off by a few tokens a message.
    Texts of any kind are counted: special tokens as plain text, lone surrogates as the replacement character.

    Raises:
        ConfigError: the family is unknown.
    """

    exact: ClassVar[bool] = True

    def __init__(self, count: Count, *, family: str) -> None:
        if family not in FRAMING:
            raise ConfigError(f"family={family!r} is unknown: use one of {', '.join(sorted(FRAMING))}")
        self.family = family
        self._count = count

    def __call__(self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None) -> int:
        """Return the tokens of a request."""
        return ceil(request_tokens(messages, tools, FRAMING[self.family], self.count_text))

    def count_text(self, text: str) -> int:
        """Return the tokens of a plain text, without any framing."""
        return self._count(_valid(text)) if text else 0


def _valid(text: str) -> str:
    """What arrives at a provider: surrogates in pairs are one character, lone ones the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class VocabularyCounter(LocalCounter):
    """Counts with a published vocabulary: quicktok's, which come in its wheel, else tiktoken's where cached.

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

    Use:
        ```python
        VocabularyCounter("o200k_base").count_text("How many tokens is this?")  # 6
        ```

    Raises:
        ConfigError: no package that counts is installed, the encoding is not on this machine, or the family unknown.

    Example:
        >>> VocabularyCounter("o200k_base").count_text("How many tokens is this?")
        6
    """

    def __init__(self, encoding: str, *, family: str | None = None) -> None:
        implied = (family for start, family in FAMILIES.items() if encoding.startswith(start))
        super().__init__(_vocabulary(encoding), family=family or next(implied, "generic"))
        self.encoding = encoding


def _vocabulary(encoding: str) -> Count:
    count = _from_quicktok(encoding) or _from_tiktoken(encoding)
    if count is None:
        local = ", ".join(_local_encodings()) or "none"
        raise ConfigError(
            f"encoding={encoding!r} is not on this machine: use one of {local}, import it into quicktok, "
            f"or set {CACHE_VARIABLE} to a folder where tiktoken has cached it"
        )
    return count


def _from_quicktok(encoding: str) -> Count | None:
    quicktok = _quicktok()
    if quicktok is None:
        return None
    try:
        count: Count = quicktok.get_encoding(encoding).count
    except (RuntimeError, TypeError):  # an unknown name, and what is no name
        return None
    return count


def _from_tiktoken(encoding: str) -> Count | None:
    if encoding not in _cached_encodings():
        return None
    import tiktoken  # noqa: PLC0415  # optional

    # `encode` raises on special tokens in a text.
    encode = tiktoken.get_encoding(encoding).encode_ordinary
    return lambda text: len(encode(text))


def _local_encodings() -> list[str]:
    """Names that can be used here; the packages that know them have to be installed.

    Raises:
        ConfigError: neither package is installed.
    """
    quicktok = _quicktok()
    bundled: set[str] = set(quicktok.MODEL_TO_ENCODING.values()) if quicktok else set()
    if quicktok is None and not _has_tiktoken():
        raise ConfigError("exact counts need a tokenizer: pip install langchain-ctxwin[exact]")
    return sorted(bundled.union(_cached_encodings()))


def _quicktok() -> Any:
    try:
        import quicktok  # noqa: PLC0415  # optional
    except ImportError:
        return None
    return quicktok


def _has_tiktoken() -> bool:
    try:
        import tiktoken  # noqa: F401, PLC0415  # optional
    except ImportError:
        return False
    return True


def _cached_encodings() -> list[str]:
    """Encodings whose file tiktoken would take from its cache, without a download."""
    folder = os.environ.get(CACHE_VARIABLE)
    if not folder or not _has_tiktoken():
        return []
    return [name for name, (file, digest) in CACHE_FILES.items() if _sha256(Path(folder) / file) == digest]


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


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
        tokenizer = _tokenizer(os.fspath(path))
        super().__init__(lambda text: len(tokenizer.encode(text, add_special_tokens=False)), family=family)
        self.path = path


def _tokenizer(path: str) -> Any:
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
