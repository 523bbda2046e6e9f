"""How much a request asks of a model, by plain signs, and how likely a model answers it well, by price and outcomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from langchain_core.messages import AnyMessage, HumanMessage

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.tool_schemas import name_of

Complexity = Literal["low", "medium", "high"]
Classify = Callable[[Sequence[AnyMessage], Sequence[Any]], Complexity]

# Chosen on every other prompt of public outcomes (RouteLLM) and every other request of two lists, measured on the
# others by `benchmarks/routing.py`.
LONG_CHARS = 80  # of what is asked, beside options to choose from; in less, any model answers nearly as well
MANY_NUMBERS = 3  # a sum has two
PRESUMED_STRENGTH = 0.5  # in the middle, where prices say nothing
ENOUGH = 0.75
"""Chance of a good answer from which a candidate is strong enough. Presumed is 1 for one whose strength is what the
complexity needs, 0.5 and a little more for a weaker one: ten good answers without a bad one make it strong enough, and
one bad answer in four takes that from any."""

PRESUMED_OF_WEAKER, MORE_BY_STRENGTH = 0.5, 0.2
NEEDED = {"low": 0.0, "medium": 0.5, "high": 1.0}
"""Complexity -> strength of a model that is enough for it."""

PRIOR_TRIALS = 10.0  # outcomes that weigh as much as what is presumed: a share of ten is known to about 15 points

_WORK = re.compile(
    r"\b(?:algorithms?|analy[sz]e|architect(?:ure)?|compare|construct|debug|deriv(?:e|ation)|design|detect|diagnose"
    r"|draft|estimate|evaluate|implement|integral|migrat\w+|optimi[sz]e|plan|proofs?|prov(?:e|ing)|recommend|reconcile"
    r"|refactor|review|rewrite|simplify|step by step|trade-?offs?|walk (?:me )?through|why|how would"
    r"|write an? \w+ \w+)\b",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"```|^[ \t]*(?:def|class|import|from|return|func|fn|const|let|var|#include|SELECT|Traceback)\b"
    r"|[{};][ \t]*$|[=!<>]=|=>|->|::|\w\(\w*\)",
    re.MULTILINE,
)
_OPTION = re.compile(r"^[ \t]*\(?[A-E][.):] .*$\n?", re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def judged(messages: Sequence[AnyMessage], tools: Sequence[Any] = ()) -> Complexity:
    """Return the complexity of a request by plain signs in its latest user message: none is low, one is medium.

    Examples:
        >>> (
        ...     judged([HumanMessage("What is 2+2?")]),
        ...     judged([HumanMessage("Prove it, and why `f(x) == x`.")]),
        ... )
        ('low', 'high')
    """
    text = last_question(messages)
    signs = [
        len(_OPTION.sub("", text)) >= LONG_CHARS,
        _WORK.search(text) is not None,
        _CODE.search(text) is not None,
        len(_NUMBER.findall(text)) >= MANY_NUMBERS,
        text.count("?") > 1,
        any(name and name in text for name in map(name_of, tools)),
    ]
    return ("low", "medium", "high")[min(sum(signs), 2)]


def last_question(messages: Sequence[AnyMessage]) -> str:
    """Return what the user asks: the text of the last user message."""
    return next(
        (
            message.text
            for message in reversed(messages)
            if isinstance(message, HumanMessage)
        ),
        "",
    )


def bucket_of(text: str, complexity: Complexity, *, needs_tools: bool) -> str:
    """Return kind and complexity of a task, under which outcomes are counted, e.g. `code/high`."""
    kind = "tools" if needs_tools else "code" if _CODE.search(text) else "text"
    return f"{kind}/{complexity}"


def chance_of(strength: float, needed: float, good: int, every: int) -> float:
    """Return the chance of a good answer: what is presumed by strength, moved by the outcomes that were counted."""
    presumed = (
        1.0 if strength >= needed else PRESUMED_OF_WEAKER + MORE_BY_STRENGTH * strength
    )
    return (PRIOR_TRIALS * presumed + good) / (PRIOR_TRIALS + every)


def strengths(infos: Sequence[ModelInfo]) -> list[float]:
    """Return how strong each model presumably is, 0 to 1, by the rank of its price; in the middle when it is unknown.

    Models of one price share a rank.
    """
    prices = [
        info.input_price if info.output_price is None else info.output_price
        for info in infos
    ]
    ranks = sorted({price for price in prices if price is not None})
    return [
        PRESUMED_STRENGTH
        if price is None or len(ranks) == 1
        else ranks.index(price) / (len(ranks) - 1)
        for price in prices
    ]
