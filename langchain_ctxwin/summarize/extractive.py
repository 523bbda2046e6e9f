"""How is a conversation summarized without a model: its most important sentences, verbatim, in order."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.summarize.candidates import Candidate, candidates
from langchain_ctxwin.summarize.pricing import text_tokens

_NEWLINE_TOKENS = 1


class ExtractiveSummarizer:
    """Keeps whole sentences, chosen by salience and labelled by role; deterministic, and no model is called.

    First come the user's rules, constraints and corrections and what the user asked for first, then decisions, final
    answers and statements with identifiers, paths or numbers, newer before older; tool results give their first
    informative lines. The lines of the previous summary compete with the new ones, so that repeated compaction keeps
    what matters and stays bounded. Of very long texts only head and tail are looked at.

    Key init args:
        counter: any token counter.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> chat = [HumanMessage("Hi there. Never touch main.py. Have a nice day.")]
        >>> ExtractiveSummarizer().summarize(chat, previous="", max_tokens=12)
        'User: Never touch main.py.'
    """

    def __init__(self, *, counter: TokenCounter | None = None) -> None:
        self._counter: TokenCounter = TokenEstimator() if counter is None else counter

    def summarize(self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int) -> str:
        """Return the summary, never longer than `max_tokens` by the counter.

        If not even the most important sentence fits, its beginning is kept.

        Raises:
            SummarizationError: there is no text at all, or `max_tokens` does not hold a single character.
        """
        items = candidates(messages, previous=previous)
        if not items:
            raise SummarizationError(
                f"0 of {len(messages)} messages have text to keep, at least 1 is needed: there is nothing to summarize"
            )
        # every line costs at least a token, so that more lines than tokens can never be kept
        ranked = sorted(items, key=lambda item: (-item.points, -item.position))[: max(max_tokens, 1)]
        empty_tokens = text_tokens(self._counter, "")
        fit = take_while_fits(
            ranked,
            max_tokens - empty_tokens,
            lambda item: max(text_tokens(self._counter, item.line) - empty_tokens, 0) + _NEWLINE_TOKENS,
            on_overflow="skip",
        )
        return self._joined(fit.kept, max_tokens) or self._beginning(ranked[0], max_tokens)

    def _joined(self, kept: tuple[Candidate, ...], max_tokens: int) -> str:
        """The kept lines in their original order; the least important go while the whole counts more than its parts."""
        while kept:
            text = "\n".join(item.line for item in sorted(kept, key=lambda item: item.position))
            tokens = text_tokens(self._counter, text)
            if tokens <= max_tokens:
                return text
            kept = kept[: -max(1, len(kept) * (tokens - max_tokens) // tokens)]
        return ""

    def _beginning(self, item: Candidate, max_tokens: int) -> str:
        """The longest beginning of the labelled statement that fits, else of the bare one."""
        for text, at_least in ((item.line, len(item.line) - len(item.text) + 1), (item.text, 1)):
            fitting, too_long = at_least - 1, len(text) + 1
            while too_long - fitting > 1:
                middle = (fitting + too_long) // 2
                fits = text_tokens(self._counter, text[:middle]) <= max_tokens
                fitting, too_long = (middle, too_long) if fits else (fitting, middle)
            if fitting >= at_least:
                return text[:fitting].rstrip()
        raise SummarizationError(f"max_tokens={max_tokens} does not hold one character: raise summary_max_tokens")
