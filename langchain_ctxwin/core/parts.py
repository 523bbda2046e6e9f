"""What a request is made of: `Parts`, with settings and prices; the messages it becomes; which reasoning stays valid.

Reasoning may be tied to all that precedes it (Anthropic, preserved thinking):

    another view changes what precedes an answer  ->  all reasoning until then is left out (`left_unbound`)
    a provider's own block stands for just that   ->  reasoning behind it stays (`swaps_prefix`)

Positions are those of the history. What else reasoning is tied to, such as the system prompt, is `Request.tied_to`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage, ToolMessage

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import UNKNOWN, ModelInfo, Rules
from langchain_ctxwin.core.provider_blocks import text_of, with_fields
from langchain_ctxwin.core.record import CLOSING, NO_MARKS, OPENING, Record
from langchain_ctxwin.core.settings import ContextSettings
from langchain_ctxwin.core.sizing import Doubt
from langchain_ctxwin.core.tool_schemas import ToolSet
from langchain_ctxwin.core.turns import MessageHistory, Price, last_user
from langchain_ctxwin.core.view import View


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything a request is made from, before anything is left out."""

    history: MessageHistory = field(repr=False)
    settings: ContextSettings = field(repr=False)
    """The settings that held when the request began; whatever is decided about it goes by them."""

    price: Price = field(repr=False)
    """Tokens of one message."""

    price_tools: Callable[[Sequence[Any]], ToolSet] = field(repr=False)
    """Size and digest of tool definitions."""

    doubt: Doubt | None = None
    """How far these prices may be off before anything was reported; None where they are taken as they are."""

    is_exact: bool = False
    """Whether every count is exact."""

    system: SystemMessage | None = None
    """System prompt and leading system messages, merged."""

    system_tokens: int = 0
    tools: Sequence[Any] = field(default=(), repr=False)
    """The tool definitions bound to the model."""

    tool_tokens: int = 0
    """Price of those that are in the prompt from its beginning."""

    tools_digest: str = ""
    model: str = ""
    """Name of the model that the request goes to; empty when unknown."""

    declared: ModelLimits = field(default_factory=ModelLimits)
    """What is stated about the model's limits beside what was learned from refusals."""

    info: ModelInfo | None = None
    """Prices of the model, where who chose it knows them."""

    rules: Rules = UNKNOWN
    """What its provider takes; what it would refuse is repaired."""

    media: Mapping[str, int] = field(default_factory=dict)
    """What of pictures and files one request may have: `max_bytes` and `max_images`."""

    pins: frozenset[int] = frozenset()
    """Positions of explicit pins: messages marked through `pin`."""

    now_seconds: float | None = None
    """Seconds since the epoch; None where no decision depends on the time."""

    focus: str = ""
    """What a host named when it asked to compact: lines of the record with its words are kept first."""

    unsealed: int = 0
    """Position up to which answers are shown without what their provider signed or encrypted: it took that no more."""

    recall: str = ""
    """Name of the agent's tool that reads what was cut; empty when it has none."""

    @property
    def verbatim(self) -> frozenset[int]:
        """Positions of the explicit pins and of the current user message."""
        current = last_user(self.history.messages)
        return self.pins if current is None else self.pins | {current}

    def price_text(self, text: str) -> int:
        """Our estimate of a text as a message of its own; 0 for an empty one."""
        return self.price(SystemMessage(content=text)) if text else 0

    def start_of(self, view: View) -> int:
        """Position of the view's first message; the view must be valid for this history."""
        first = self.history.first
        return max(first, view.start.index) if view.start else first


CONSTRAINTS_TEXT = "Rules that hold for the whole conversation:"
RECORD_ID = "ctxwin-record"


def merge_system(
    prompt: str | SystemMessage, leading: Sequence[AnyMessage]
) -> SystemMessage | None:
    """Merge the system prompt with the system messages that lead the history; None when all are empty.

    A prompt with content blocks (cache markers, for example) keeps them as they are.
    """
    base = prompt if isinstance(prompt, SystemMessage) else SystemMessage(prompt)
    filled = [message for message in (base, *leading) if message.content]
    if not filled:
        return None
    first, *others = filled
    texts = (text_of(message.content) for message in others)
    return append_text(cast("SystemMessage", first), [*filter(None, texts)])


def append_text(
    system: SystemMessage | None, parts: Sequence[str]
) -> SystemMessage | None:
    """Return the system message with text added at its end; the same object when there is nothing to add."""
    if not parts:
        return system
    message = system or SystemMessage("")
    content: Any = message.content
    if isinstance(content, list):
        content = [*content, {"type": "text", "text": "\n\n".join(parts)}]
    else:
        content = "\n\n".join(filter(None, (content, *parts)))
    return with_fields(message, content=content)


def record_text(summary: str, record: Record) -> str:
    """Return the fenced account of what left the view, the summary above the record; empty when nothing left."""
    lines = record.beside(summary)
    dropped_note = f"({record.messages:,} left out)" if record.messages else ""
    safe_summary = summary.strip().translate(NO_MARKS)  # nothing quoted closes it
    parts = [part for part in (safe_summary, lines, dropped_note) if part]
    return "\n".join((OPENING, *parts, CLOSING)) if parts else ""


def constraints_text(constraints: Sequence[str]) -> str:
    """Return the engine-level rules as one block; empty when there are none."""
    rules = [f"- {rule}" for rule in constraints]
    return "\n".join([CONSTRAINTS_TEXT, *rules]) if rules else ""


def unbound_before(messages: Sequence[AnyMessage], stop: int, rules: Rules) -> int:
    """Return the position up to which reasoning is left out when the prefix of the first `stop` messages changes.

    The step whose calls wait for an answer keeps its reasoning where the provider would refuse it without.
    """
    is_waiting = stop and isinstance(messages[stop - 1], ToolMessage)
    if not (rules.calls_need_reasoning and is_waiting):
        return stop
    answers = (i for i in reversed(range(stop)) if isinstance(messages[i], AIMessage))
    return next(answers, stop)
