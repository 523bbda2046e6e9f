"""Exact counts, where an estimate is not close enough.

The engine's default, `TokenEstimator`, needs nothing installed, asks nobody, and is corrected by the sizes that
providers report. That is enough for most agents. These counters are for the others:

| your model                                 | counter                                | what is exact     |
|--------------------------------------------|----------------------------------------|-------------------|
| OpenAI, Llama 3, Qwen                      | `VocabularyCounter("o200k_base")`      | text              |
| open weights, with a tokenizer at hand     | `LocalCounter(count, family="llama")`  | text              |

They count on this machine and are `exact`: what the provider adds around a text (roles, separators, tool schemas,
media) goes by published constants.

    engine = ContextEngine(limits=model, counter=VocabularyCounter("o200k_base"))

All have the shape of LangChain's counters, so they also work in `trim_messages(token_counter=...)`. `CharRatioCounter`
has the published rules of thumb, to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar

from langchain_core.messages import MessageLikeRepresentation

from langchain_ctxwin.core.tokens import request_tokens
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.errors import ConfigError

# Family of the framing constants by how the name of an encoding begins.
FAMILIES = {"o200k": "openai", "cl100k": "cl100k", "llama": "llama", "qwen": "qwen"}


class LocalCounter:
    """Counts every text with a tokenizer; framing, tool structure and media by the constants of a family.

    What a provider adds around the text is published nowhere, so a request may be off by a few tokens a message.

    Args:
        count: returns the tokens of a text, e.g. `lambda text: len(tokenizer.encode(text, add_special_tokens=False))`.
        family: whose framing constants are used: openai, anthropic, gemini, llama, qwen, deepseek, generic, ...

    Raises:
        ConfigError: the family is unknown.
    """

    exact: ClassVar[bool] = True

    def __init__(self, count: Callable[[str], int], *, family: str) -> None:
        if family not in FRAMING:
            raise ConfigError(
                f"family={family!r} is unknown: use one of {', '.join(sorted(FRAMING))}"
            )
        self.family = family
        self._count = count

    def __call__(
        self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None
    ) -> int:
        """Return the tokens of a request."""
        return ceil(
            request_tokens(messages, tools, FRAMING[self.family], self.count_text)
        )

    def count_text(self, text: str) -> int:
        """Return the tokens of a plain text, without any framing; special tokens are text as well."""
        # surrogates in pairs are one character, lone ones are replaced, as on the way to a provider
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
            Its name says whose framing constants are used.

    Instantiate:
        ```python
        engine = ContextEngine(limits=model, counter=VocabularyCounter("o200k_base"))
        ```

    Raises:
        ConfigError: quicktok is not installed, or the encoding is not on this machine.

    Examples:
        >>> VocabularyCounter("o200k_base").count_text("How many tokens is this?")
        6
    """

    def __init__(self, encoding: str) -> None:
        try:
            import quicktok  # noqa: PLC0415  # optional
        except ImportError as error:
            raise ConfigError(
                "exact counts need a tokenizer: pip install langchain-ctxwin[exact]"
            ) from error
        try:
            count = quicktok.get_encoding(encoding).count
        except (
            RuntimeError,
            TypeError,
        ) as error:  # an unknown name, and what is no name
            bundled = ", ".join(sorted(set(quicktok.MODEL_TO_ENCODING.values())))
            raise ConfigError(
                f"encoding={encoding!r} is not on this machine: use one of {bundled}, or import it into quicktok"
            ) from error
        implied = (
            family for start, family in FAMILIES.items() if encoding.startswith(start)
        )
        super().__init__(count, family=next(implied, "generic"))


@dataclass(frozen=True, slots=True)
class CharRatioCounter:
    """Divides characters by a constant: the published heuristics, for comparison and for tests.

    `CharRatioCounter()` is exactly `len(text) // 4`, the rule of thumb for English, within 20 % of the truth on about
    half of real texts; 2.5 characters, and 4.0 with a margin of 0.2, are the two others.
    """

    chars_per_token: float = 4.0
    margin: float = 0.0

    def __call__(
        self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None
    ) -> int:
        """Return the tokens of all text in messages and tool definitions, media by kind and size."""
        return int(request_tokens(messages, tools, CHAR_RATIO_FRAMING, self.count_text))

    def count_text(self, text: str) -> int:
        """Return the tokens of a plain text."""
        return int(len(text) / self.chars_per_token * (1 + self.margin))


# Role and separators of one message, the constant of LangChain's own counter, and nothing else beside the text.
CHAR_RATIO_FRAMING = replace(
    FRAMING["generic"], request=0, message=3, call=0, any_tools=0, tool=0
)
