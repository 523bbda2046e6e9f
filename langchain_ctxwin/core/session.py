"""The session state behind a request: read from JSON, checked against the history, written back as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from langchain_ctxwin.core.model_info import Money
from langchain_ctxwin.core.provider_blocks import Block, Messages
from langchain_ctxwin.core.record import Count, Record
from langchain_ctxwin.core.sizing import Number, Sizes
from langchain_ctxwin.core.turns import MessageHistory, last_user
from langchain_ctxwin.core.view import VIEW, View, message_id

State = Mapping[str, Any]
Json = dict[str, Any]
Limit = Annotated[Count, Field(gt=0)]


# failed summaries in a row after which none is tried until the next user message
MAX_INEFFECTIVE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One summary on its way: at most one per conversation, valid only for the history it was begun for."""

    key: str  # names the work for every process: conversation and content
    start: Count  # position of the first message that the summary adds to the one before it
    stop: Count  # position behind the last one that it covers
    digest: str  # fingerprint of the history up to `stop`
    since: float  # when it was begun, seconds since the epoch
    max_tokens: int  # length asked for
    text: str = ""  # the finished summary; empty while it is being written
    block: Block | None = None  # the same as a provider reads it

    @property
    def is_written(self) -> bool:
        """True when the summary is finished."""
        return bool(self.text or self.block)

    def to_json(self) -> Json:
        """Return the JSON form."""
        value: Json = PENDING.dump_python(self, mode="json", exclude_none=True)
        return value

    @classmethod
    def from_json(cls, value: State) -> Pending | None:
        """Read what `to_json` returns; None when there is no summary on its way."""
        return PENDING.validate_python(value) if "key" in value else None

    def is_of(self, history: MessageHistory, view: View) -> bool:
        """False where its messages changed, are summarized already, or nothing follows them any more."""
        is_next = self.start == uncovered(view, history.first)
        if not (is_next and self.stop < len(history.messages)):
            return False
        return history.checksums[self.stop] == self.digest


def uncovered(view: View, first: int) -> int:
    """Return the position of the first message that no summary covers; `first` is the first one of the history."""
    return max(first, view.covered)


PENDING = TypeAdapter(Pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The `context_*` keys of one conversation, verified for one history."""

    view: View = field(default_factory=View)
    summary: str = ""
    # what was learned of sizes and limits: see `_Counts`
    counts: State = field(default_factory=dict)
    # what became of compactions and summaries; `binding_model` is the one whose API refused tied reasoning
    guard: State = field(default_factory=dict)
    # keys of view, summary and record before the latest one
    former: State = field(default_factory=dict)
    pending: Pending | None = (
        None  # the summary that is being written or waits to be shown
    )
    # what did not match the history and was mended, one line each
    faults: tuple[str, ...] = ()

    @property
    def compactions(self) -> int:
        """Number of reductions so far."""
        return self.number("compactions")

    @property
    def unanchored(self) -> Json:
        """The counts without the last reported size: the request that it is of is no prefix of the next one."""
        return {key: value for key, value in self.counts.items() if key != "anchor"}

    def number(self, name: str) -> int:
        """Return a number of the guard; 0 where it says nothing.

        `since` is the position of the latest compaction, `unbound` the one before which reasoning is left out, where
        that is another, `unsealed` the same after a provider refused what it had signed itself. `ineffective` counts
        summaries in a row, across user messages, that failed or freed too little; `dropped_turns` counts turns that
        left without a summary.
        """
        return int(self.guard.get(name, 0))

    def has_given_up(self, messages: Messages) -> bool:
        """True while no summary is tried: after two failures in a row, until the next user message."""
        has_failed = self.number("ineffective") >= MAX_INEFFECTIVE
        return has_failed and self.guard.get("asked") == last_user(messages)

    def to_json(self) -> Json:
        """Return the state update that makes the checked session the stored one."""
        return {
            "context_view": self.view.to_json(),
            "context_summary": self.summary,
            "context_record": self.view.record.to_json()
            | ({"former": dict(self.former)} if self.former else {}),
            "context_counts": self.counts,
            "context_guard": self.guard,
            "context_pending": self.pending.to_json() if self.pending else {},
        }


# ---- what is stored: a key that holds anything else is dropped whole, with a line ------------------------------------


def read_key(name: str, value: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the value of a state key; for a damaged one an empty value, and the fault as a line.

    Of a mapping the keys that are known, any of which may be missing.
    """
    read, empty = _KEYS[name]
    if not value:
        return empty(), ()
    try:
        known = read(value)
        if isinstance(known, dict):
            known = {key: value[key] for key in known}
    except Exception:  # noqa: BLE001  # whatever reading a value raises that is not ours
        return empty(), (f"{name} holds nothing of ours: it was dropped",)
    return known, ()


class _Anchor(TypedDict):
    digest: str
    tokens: Count
    estimate: Count
    index: Count


class _Counts(TypedDict, total=False):
    anchor: _Anchor | None
    sizes: dict[str, Sizes]
    limits: dict[str, Limit]
    media: dict[str, dict[str, Limit]]
    tied_to: str
    answered_seconds: Number
    messages: Count
    first: str | None


class _Guard(TypedDict, total=False):
    spent: dict[str, Money]
    allowed: dict[str, Money]
    compactions: Count
    dropped_turns: Count
    ineffective: Count
    asked: Count | None
    since: Count
    unbound: Count
    unsealed: Count
    reason: str
    binding_model: str


class _Report(TypedDict, total=False):
    input_limit: Count
    total_tokens: Count
    over_by: Count
    clamped: dict[str, list[Any]]


_KEYS: Mapping[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "context_view": (VIEW.validate_python, View),
    "context_record": (Record.from_json, Record),
    "context_summary": (TypeAdapter(str).validate_python, str),
    "context_pending": (Pending.from_json, lambda: None),
    "context_tools": (TypeAdapter(list[str]).validate_python, list),
    "context_counts": (TypeAdapter(_Counts).validate_python, dict),
    "context_guard": (TypeAdapter(_Guard).validate_python, dict),
    "context_report": (TypeAdapter(_Report).validate_python, dict),
}
"""What reads each key, and what stands for one that holds nothing."""


# ---- the stored session in this history: every position is verified, once -------------------------------------------


def read_session(state: State | None, history: MessageHistory) -> Session:
    """Read the session of a state, verified for this history."""
    stored = {name: (state or {}).get(name) for name in _KEYS}
    if not any(stored.values()):
        return Session()
    values, faults = Json(), list[str]()
    for name, value in stored.items():
        values[name], key_faults = read_key(name, value)
        faults += key_faults
    # beside its lines the record holds the keys before the latest compaction, which are read when that is undone
    kept = stored["context_record"]
    former = kept.get("former") if isinstance(kept, Mapping) else None
    session = Session(
        view=replace(values["context_view"], record=values["context_record"]),
        former=former if isinstance(former, Mapping) else {},
        summary=values["context_summary"],
        counts=values["context_counts"],
        guard=values["context_guard"],
        pending=values["context_pending"],
        faults=tuple(faults),
    )
    if stored["context_view"] and values["context_view"] == View():
        return _begun_anew(session, history)
    return verified(session, history)


def verified(session: Session, history: MessageHistory) -> Session:
    """Return the session with every position verified against the history.

    A view that does not hold for this history (its start was removed, it is another branch, something that left was
    edited) is dropped with its summary, record and anchor; the plan is then made again from the full history.
    """
    view, pending = session.view, session.pending
    faults = [*session.faults, *_deleted(session.counts, history.messages)]
    if not _holds(view, history):
        faults.append(
            "earlier history was edited or removed: view, summary and anchor were dropped"
        )
        return _begun_anew(replace(session, faults=tuple(faults)), history)
    if pending and not pending.is_of(history, view):
        pending = None
        faults.append(
            "the summary on its way is of messages that are not in this branch: it was dropped"
        )
    return replace(session, pending=pending, faults=tuple(faults))


def _begun_anew(session: Session, history: MessageHistory) -> Session:
    """The session without a view that cannot be used, and without what goes with it.

    Sizes that were reported so far belong to requests that the dropped view made.
    """
    guard = _since_now(session.guard, history.messages)
    return Session(counts=session.unanchored, guard=guard, faults=session.faults)


def _deleted(counts: State, messages: Messages) -> list[str]:
    """Say that the history is shorter than the state remembers, though its beginning was not removed on purpose."""
    seen = counts.get("messages", 0)
    if len(messages) >= seen or (
        messages and message_id(messages, 0) == counts.get("first")
    ):
        return []
    shrunk = f"history has {len(messages)} messages, the state remembers {seen}"
    return [
        f"{shrunk}: if nothing was removed on purpose, old checkpoints of this thread were deleted"
    ]


def guard_after(
    session: Session, messages: Messages, *, reason: str, **changes: Any
) -> Json:
    """Return the guard after one more compaction at this point of the history."""
    return {
        **_since_now(session.guard, messages),
        "compactions": session.compactions + 1,
        "reason": reason,
        **changes,
    }


def _since_now(guard: State, messages: Messages) -> Json:
    """The guard of a request that begins anew: all reasoning so far is tied to another beginning."""
    lasting = {key: value for key, value in guard.items() if key != "unbound"}
    return {**lasting, "since": len(messages)}


def _holds(view: View, history: MessageHistory) -> bool:
    """True where the start is what it was, all else lies before it, and nothing that left was edited since."""
    if view.start and not view.start.is_in(history.messages):
        return False
    start = view.start_index
    is_before = all(index <= start for index in (view.covered, *view.pinned))
    return is_before and view.left_checksum in {"", history.checksum_of(view)}
