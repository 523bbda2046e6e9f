"""How is one part worked on: its call, and smaller ones when the provider refuses it as too large?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage

from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.silent import LENGTH_STOPS, STOP_KEYS
from langchain_ctxwin.decompose.chunks import places_of
from langchain_ctxwin.decompose.parts import Parting
from langchain_ctxwin.decompose.state import Answer, Failure, Outcome, Work
from langchain_ctxwin.errors import BudgetExceededError, ContextWindowError, NoModelFitsError

LONGEST_ERROR_CHARS = 500
"""Error texts may quote the request; a report needs their beginning."""


class Attempts:
    """The calls for one part, one after the other: ask `request`, send it, and tell what came back."""

    def __init__(self, work: Work, parting: Parting) -> None:
        self._work = work
        self._parting = parting
        self._waiting = [work]
        self._outcome = no_outcome(work["part"])
        self._last_error: Exception | None = None

    @property
    def request(self) -> list[AnyMessage] | None:
        """The next request; None when nothing is left to do."""
        return self._parting.request_of(self._waiting[-1]) if self._waiting else None

    def answered(self, reply: Any) -> None:
        """Take a reply: a message, or its text."""
        work = self._waiting[-1]
        self._count(reply)
        text = str(reply.text if isinstance(reply, BaseMessage) else reply).strip()
        if not text:
            problem = "the model returned no text: check its output limit, reasoning budget and safety filters"
            self._give_up(ContextWindowError(problem))
            return
        self._waiting.pop()
        covers = places_of(work["chunks"])
        self._outcome["answers"].append(Answer(text=text, sub_question=work["sub_question"], covers=covers))

    def failed(self, error: Exception) -> None:
        """Take an exception: a part that is too large is worked on in smaller ones, any other one is given up."""
        self._outcome["calls"] += 1
        if not _is_too_large(error):
            self._give_up(error)
            return
        self._outcome["refused"] += 1
        found = self._parting.smaller(self._waiting[-1])
        if not found.works:
            self._give_up(error)
            return
        self._waiting[-1:] = found.works[::-1]
        self._outcome["cuts"] += found.cuts
        self._outcome["clamped"] += found.clamped

    def outcome(self) -> Outcome:
        """Return what became of the part; raise the last exception when there must be an answer and is none."""
        if self._outcome["answers"]:
            return self._outcome
        if self._work["must_answer"] and self._last_error is not None:
            raise self._last_error
        return {**self._outcome, "unanswered": self._work}

    def _give_up(self, error: Exception) -> None:
        work = self._waiting.pop()
        self._last_error = error
        failure = Failure(
            level=work["level"],
            part=work["part"],
            sub_question=work["sub_question"],
            chunks=places_of(work["chunks"]),
            error=f"{type(error).__name__}: {error}"[:LONGEST_ERROR_CHARS],
        )
        self._outcome["failures"].append(failure)

    def _count(self, reply: Any) -> None:
        self._outcome["calls"] += 1
        if not isinstance(reply, AIMessage):
            return
        usage = reply.usage_metadata
        self._outcome["input_tokens"] += usage["input_tokens"] if usage else 0
        self._outcome["output_tokens"] += usage["output_tokens"] if usage else 0
        self._outcome["cut_off"] += _was_cut_off(reply.response_metadata)


def no_outcome(part: int) -> Outcome:
    """Return the outcome of a part before anything was done."""
    return Outcome(
        part=part,
        answers=[],
        failures=[],
        calls=0,
        refused=0,
        input_tokens=0,
        output_tokens=0,
        cut_off=0,
        cuts=[],
        clamped=[],
    )


def _is_too_large(error: Exception) -> bool:
    return isinstance(error, BudgetExceededError | NoModelFitsError) or classify_overflow(error) is not None


def _was_cut_off(metadata: Mapping[str, Any]) -> bool:
    return any(str(metadata.get(key, "")).lower() in LENGTH_STOPS for key in STOP_KEYS)
