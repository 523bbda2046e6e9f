"""What was sent, what would have been sent without management, and what was wrong with it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AnyMessage, BaseMessage

from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.pairing import find_faults
from langchain_ctxwin.demo import ruler
from langchain_ctxwin.demo.checks import Verdict


@dataclass(slots=True, kw_only=True)
class Ledger:
    """The figures of one conversation; the only thing in the demo that changes. All sizes are tokens."""

    input_limit: int
    fixed_tokens: int
    """System prompt and tools, as the model counts them."""

    steps: int = 0
    sent_tokens: int = 0
    last_tokens: int = 0
    """The request that was answered last."""

    largest_tokens: int = 0
    """Largest request that was answered."""

    refused: list[int] = field(default_factory=list)
    """Sizes of the requests that the provider refused as too large."""

    largest_result_tokens: int = 0
    unmanaged_tokens: int = 0
    """What the same steps would have sent with the whole history each time."""

    unmanaged_failure: int = 0
    """First step whose whole history exceeds the limit; 0 when none does."""

    history_tokens: int = 0
    orphans: list[str] = field(default_factory=list)
    """What a strict provider would refuse in the requests."""

    events: dict[str, int] = field(default_factory=dict)
    """How often the package compacted, by kind, and whatever else it reported."""

    verdicts: list[Verdict] = field(default_factory=list)
    has_strict_checks: bool = True
    """False when the answers come from a model that was not told how to write them."""

    def add(self, message: AnyMessage) -> None:
        """Note a message of the history."""
        tokens = ruler.message_tokens(message)
        self.history_tokens += tokens
        if message.type == "tool":
            self.largest_result_tokens = max(self.largest_result_tokens, tokens)

    def answered(self, tokens: int) -> None:
        """Note a request that was answered, before its answer joins the history."""
        self.steps += 1
        self.last_tokens = tokens
        self.sent_tokens += tokens
        self.largest_tokens = max(self.largest_tokens, tokens)
        whole = self.fixed_tokens + self.history_tokens
        self.unmanaged_tokens += whole
        if whole > self.input_limit and not self.unmanaged_failure:
            self.unmanaged_failure = self.steps

    def count_event(self, event: Mapping[str, Any]) -> None:
        """Note an event of the package."""
        kind = str(event.get("kind") or event["type"])
        self.events[kind] = self.events.get(kind, 0) + 1

    @property
    def failures(self) -> list[str]:
        """Checks that did not hold, one line each."""
        true, kept, turns = self.true_answers, self.kept_rules, len(self.verdicts)
        problems = (
            (self.largest_tokens > self.input_limit, f"a request of {self.largest_tokens:,} tokens is over the limit"),
            (bool(self.orphans), f"{len(self.orphans)} orphaned calls: {'; '.join(self.orphans[:1])}"),
            (self.has_strict_checks and true < turns, f"{turns - true} of {turns} answers are wrong"),
            (self.has_strict_checks and kept < turns, f"{turns - kept} of {turns} answers break the rule"),
        )
        return [text for is_problem, text in problems if is_problem]

    @property
    def true_answers(self) -> int:
        """Answers that agree with the file system."""
        return sum(verdict.is_true for verdict in self.verdicts)

    @property
    def kept_rules(self) -> int:
        """Answers that end as the first message demanded."""
        return sum(verdict.keeps_rule for verdict in self.verdicts)


class Recorder(BaseCallbackHandler):
    """Sees every request on its way to the model, the refused ones too."""

    raise_error = True
    """A fault in the checks must not pass for a clean run."""

    def __init__(self, ledger: Ledger, tools: Sequence[dict[str, Any]]) -> None:
        self._ledger = ledger
        self._tools = tools
        self._sizes: dict[UUID, int] = {}

    def on_chat_model_start(  # the base class documents the arguments
        self,
        serialized: dict[str, Any],  # noqa: ARG002  # the base class's signature, here and below
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Check and measure one request."""
        self._ledger.orphans.extend(find_faults(messages[0]))  # type: ignore[arg-type]  # the requests of a chat model
        self._sizes[run_id] = ruler.request_tokens(messages[0], self._tools)

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:  # noqa: ARG002
        """Note a request that was answered."""
        self._ledger.answered(self._sizes.pop(run_id))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:  # noqa: ARG002
        """Note a request that was refused as too large; other failures end the run."""
        tokens = self._sizes.pop(run_id)
        if classify_overflow(error) is not None:
            self._ledger.refused.append(tokens)
