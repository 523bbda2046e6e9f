"""How is a conversation summarized without a model: its most important sentences, verbatim, in order."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.summarize.candidates import Candidate, candidates
from langchain_ctxwin.summarize.layout import Draft, Line, rendered
from langchain_ctxwin.summarize.pricing import text_tokens

_NEWLINE_TOKENS = 1
_FILLER_POINTS = 3.0  # a statement with nothing but its speaker and its age to speak for it
_FIXED_BYTES = 60  # keeps the shortest statement from outranking all: a tenth of the size is not ten times the worth


class ExtractiveSummarizer:
    """Keeps whole sentences, chosen by salience and labelled by role; deterministic, and no model is called.

    First come the user's rules, constraints and corrections and what the user asked for first, then the facts that the
    user stated, decisions, final answers and statements with identifiers, paths or numbers, newer before older, and
    first those that have to do with the latest question; of two that say as much the shorter. A value that a later
    statement replaces goes, also from the previous summary. Neighbouring lines share their label. Tool results give
    their first informative lines; those with values that nobody used afterwards get the room that is left. The lines
    of the previous summary compete with the new ones, so that repeated compaction keeps what matters and stays
    bounded. Of very long texts only head and tail are looked at.

    Key init args:
        counter: any token counter.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> chat = [HumanMessage("Hi there. Never touch main.py. Have a nice day.")]
        >>> ExtractiveSummarizer().summarize(chat, previous="", max_tokens=8)
        'User: Never touch main.py.'
    """

    is_local = True
    """No model is asked, so it is run in place."""

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
        ranked = sorted(items, key=_rank)[: max(max_tokens, 1)]
        return self._joined(self._kept(ranked, max_tokens), max_tokens) or self._beginning(ranked[0].line, max_tokens)

    def _kept(self, ranked: Sequence[Candidate], max_tokens: int) -> list[Line]:
        """The lines that fit, most important first; what one costs depends on the labels that it needs beside them."""
        empty_tokens = text_tokens(self._counter, "")
        room, draft, kept = max_tokens - empty_tokens + _NEWLINE_TOKENS, Draft(), list[Line]()
        for item in ranked:
            if room <= _NEWLINE_TOKENS:
                break
            added_tokens = max(text_tokens(self._counter, draft.addition(item.line)) - empty_tokens, 0)
            if added_tokens + _NEWLINE_TOKENS <= room:
                room -= added_tokens + _NEWLINE_TOKENS
                draft.add(item.line)
                kept.append(item.line)
        return kept

    def _joined(self, kept: Sequence[Line], max_tokens: int) -> str:
        """The kept lines in their original order; the least important go while the whole counts more than its parts."""
        while kept:
            text = rendered(kept)
            tokens = text_tokens(self._counter, text)
            if tokens <= max_tokens:
                return text
            kept = kept[: -max(1, len(kept) * (tokens - max_tokens) // tokens)]
        return ""

    def _beginning(self, line: Line, max_tokens: int) -> str:
        """The longest beginning of the labelled statement that fits, else of the bare one."""
        whole = rendered([line])
        for text, at_least in ((whole, len(whole) - len(line.text) + 1), (line.text, 1)):
            fitting, too_long = at_least - 1, len(text) + 1
            while too_long - fitting > 1:
                middle = (fitting + too_long) // 2
                fits = text_tokens(self._counter, text[:middle]) <= max_tokens
                fitting, too_long = (middle, too_long) if fits else (fitting, middle)
            if fitting >= at_least:
                return text[:fitting].rstrip()
        raise SummarizationError(f"max_tokens={max_tokens} does not hold one character: raise summary_max_tokens")


def _rank(item: Candidate) -> tuple[float, int]:
    """Sorts by importance for the room taken, then newest first; what has nothing to speak for it comes last."""
    worth = item.points - _FILLER_POINTS
    size = len(item.line.text.encode(errors="surrogatepass")) + _FIXED_BYTES
    return (-worth / size if worth > 0 else -worth, -item.line.position)
