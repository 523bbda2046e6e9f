"""How is one part worked on: its call, and smaller ones when the provider refuses it as too large?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage

from langchain_ctxwin.core.overflow import classify_overflow, request_texts
from langchain_ctxwin.core.recovery import LENGTH_STOPS, STOP_KEYS
from langchain_ctxwin.decompose.chunks import places_of
from langchain_ctxwin.decompose.parts import Parting
from langchain_ctxwin.decompose.state import Answer, Failure, Outcome, Work
from langchain_ctxwin.errors import BudgetExceededError, ContextWindowError, NoModelFitsError

LONGEST_ERROR_CHARS = 500
"""Error texts may quote the request; a report needs their beginning."""


class Attempts:
    """The calls for one part, one after the other: ask `next_request`, send it, and tell what came back."""

    def __init__(self, work: Work, parting: Parting) -> None:
        self._work = work
        self._parting = parting
        self._waiting = [work]
        self._outcome = no_outcome(work["part"])
        self._last_error: Exception | None = None

    def next_request(self) -> list[AnyMessage] | None:
        """Return the next request; None when nothing is left to do.

        A part that is larger than another one was allowed to be is split before it is sent.
        """
        while self._waiting:
            work = self._waiting[-1]
            if not self._parting.is_known_too_large(work) or not self._divided(work):
                return self._parting.request_of(work)
        return None

    def answered(self, reply: Any) -> None:
        """Take a reply: a message, or its text."""
        work = self._waiting[-1]
        self._count(reply)
        text = str(reply.text if isinstance(reply, BaseMessage) else reply).strip()
        if not text:
            problem = "the model returned no text: check its output limit, reasoning budget and safety filters"
            self._give_up(ContextWindowError(problem), [work])
            return
        self._waiting.pop()
        covers = places_of(work["chunks"])
        self._outcome["answers"].append(Answer(text=text, sub_question=work["sub_question"], covers=covers))

    def failed(self, error: Exception) -> None:
        """Take an exception: a part that is too large is worked on in smaller ones, any other one is given up.

        When one that cannot become smaller is refused, too, its size is not the reason: the rest is not sent.
        """
        self._outcome["calls"] += 1
        work = self._waiting[-1]
        overflow = classify_overflow(error, request=request_texts(self._parting.request_of(work)))
        if overflow is None and not isinstance(error, BudgetExceededError | NoModelFitsError):
            self._give_up(error, [work])
            return
        self._outcome["refused"] += 1
        if overflow is not None:
            self._parting.refused(work, overflow)
        if not self._divided(work):
            self._give_up(error, self._waiting[::-1])

    def outcome(self) -> Outcome:
        """Return what became of the part; raise the last exception when there must be an answer and is none."""
        if self._outcome["answers"]:
            return self._outcome
        if self._work["must_answer"] and self._last_error is not None:
            raise self._last_error
        return {**self._outcome, "cuts": [], "clamped": [], "unanswered": self._work}  # tried again as it was

    def _divided(self, work: Work) -> bool:
        """Put smaller parts in the place of one; False when it cannot become smaller."""
        found = self._parting.smaller(work)
        if not found.works:
            return False
        self._waiting[-1:] = found.works[::-1]
        self._outcome["cuts"] += found.cuts
        self._outcome["clamped"] += found.clamped
        return True

    def _give_up(self, error: Exception, works: list[Work]) -> None:
        """Report the parts that come next as one failure."""
        del self._waiting[-len(works) :]
        work = works[0]
        self._last_error = error
        failure = Failure(
            level=work["level"],
            part=work["part"],
            sub_question=work["sub_question"],
            chunks=places_of(chunk for work in works for chunk in work["chunks"]),
            error=f"{type(error).__name__}: {error}"[:LONGEST_ERROR_CHARS],
        )
        self._outcome["failures"].append(failure)

    def _count(self, reply: Any) -> None:
        self._outcome["calls"] += 1
        input_tokens, output_tokens = usage_of(reply)
        self._outcome["input_tokens"] += input_tokens
        self._outcome["output_tokens"] += output_tokens
        self._outcome["cut_off"] += isinstance(reply, AIMessage) and _was_cut_off(reply.response_metadata)


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


def usage_of(reply: Any) -> tuple[int, int]:
    """Return the input and output tokens that a reply reports; 0 where it does not."""
    usage = reply.usage_metadata if isinstance(reply, AIMessage) else None
    return (usage["input_tokens"], usage["output_tokens"]) if usage else (0, 0)


def _was_cut_off(metadata: Mapping[str, Any]) -> bool:
    return any(str(metadata.get(key, "")).lower() in LENGTH_STOPS for key in STOP_KEYS)
