"""The session state behind a request: read from JSON, checked against the history, written back as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage

from langchain_ctxwin.core.calibration import Belief, Measured
from langchain_ctxwin.core.priced_view import last_user, step_at
from langchain_ctxwin.core.record import MAX_COUNT, Record, stored_count
from langchain_ctxwin.core.turns import CHECKSUM_MODULUS
from langchain_ctxwin.core.view import Position, View, message_id, position_of, stored_position


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One summary on its way: at most one per conversation, valid only for the history it was begun for."""

    key: str
    """Names the work for every process: conversation and content."""

    start: Position
    """First message that the summary adds to the one before it."""

    through: Position
    """Last message that it covers."""

    digest: str
    """Fingerprint of the messages from `start` to `through`."""

    since_seconds: float
    """When it was begun, seconds since the epoch."""

    max_tokens: int
    """Length asked for."""

    text: str = ""
    """The finished summary; empty while it is being written."""

    @property
    def stop(self) -> int:
        """Position after the last message that it covers."""
        return self.through.index + 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "key": self.key,
            "start": {"id": self.start.id, "index": self.start.index},
            "through": {"id": self.through.id, "index": self.through.index},
            "digest": self.digest,
            "since": self.since_seconds,
            "max_tokens": self.max_tokens,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Pending | None:
        """Read the JSON form; None when there is no summary on its way.

        Raises:
            KeyError, TypeError, ValueError: it is not what `to_json` writes.
        """
        if not value or "key" not in value:
            return None
        start, through = (stored_position(value[name]) for name in ("start", "through"))
        since = float(value["since"])
        if not 0 <= since <= MAX_COUNT:
            raise ValueError("no time")
        return cls(
            key=str(value["key"]),
            start=start,
            through=through,
            digest=str(value["digest"]),
            since_seconds=since,
            max_tokens=stored_count(value["max_tokens"]),
            text=str(value.get("text") or ""),
        )

    def is_true_of(self, messages: Sequence[AnyMessage]) -> bool:
        """True when the messages are still what they were when it was begun; costs time, so ask before showing it."""
        return content_digest(messages, self.start.index, self.stop) == self.digest

    def located(self, messages: Sequence[AnyMessage], view: View, first: int) -> Pending | None:
        """Return it with verified positions; None when its messages left this branch, or are summarized already."""
        start, through = self.start.find(messages), self.through.find(messages)
        if start is None or through is None or not start <= through < len(messages) - 1:  # what follows it was removed
            return None
        if start != uncovered(view, first):
            return None
        if (start, through) == (self.start.index, self.through.index):
            return self
        return replace(self, start=position_of(messages, start), through=position_of(messages, through))


def uncovered(view: View, first: int) -> int:
    """Return the position of the first message that no summary covers; `first` is the first one of the history."""
    return max(first, view.covered.index + 1) if view.covered else first


def content_digest(messages: Sequence[AnyMessage], start: int, stop: int) -> str:
    """Return a fingerprint of texts and calls of the messages in `[start, stop)`, whatever ids they have now."""
    digest = hashlib.blake2b(digest_size=12)
    for index in range(start, stop):
        message = messages[index]
        calls = [[call["name"], call["args"]] for call in message.tool_calls] if isinstance(message, AIMessage) else []
        parts = [message.type, message.content, calls]
        digest.update(json.dumps(parts, default=str).encode())
    return digest.hexdigest()


Check = Callable[[Any], bool]


def valid_counts(value: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what is valid of `context_counts`, and a line for every key that is not; unknown keys leave silently."""
    return _valid("context_counts", value, _COUNTS)


def valid_guard(value: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what is valid of `context_guard`, and a line for every key that is not."""
    return _valid("context_guard", value, _GUARD)


def valid_view(value: object, record: Record | None = None) -> tuple[View, tuple[str, ...]]:
    """Return the stored view with its record; the whole history, and a line, when it is not one."""
    try:
        view = View.from_json(value or {}, record)  # type: ignore[arg-type]  # anything may be stored
        if view.record.lines and not (view.start or view.cleared or view.clamped or view.archived):
            return replace(view, record=Record()), (
                "context_record tells of nothing that left the view: it was dropped",
            )
        return _converted(view, value) if value else (view, ())
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return View(), ("context_view holds no view of ours: it was dropped, the whole history counts",)


def valid_summary(value: object, view: View) -> tuple[str, tuple[str, ...]]:
    """Return the stored summary; none, and a line, when it is no text, or the view says that nothing left."""
    if not value:
        return "", ()
    if not isinstance(value, str):
        return "", (f"context_summary is {type(value).__name__}, not a text: it was dropped",)
    if view.start is None and view.covered is None:
        return "", ("context_summary stands for nothing that left the view: it was dropped",)
    return value, ()


def valid_report(value: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what a step reads of the `context_report` before it, and a line for every key that is not valid."""
    return _valid("context_report", value, _REPORT)


def valid_tools(value: object) -> tuple[list[str], tuple[str, ...]]:
    """Return the stored names of tools; none, and a line, when it is anything but a list of texts."""
    if not value:
        return [], ()
    if not isinstance(value, list | tuple) or not all(map(_is_text, value)):
        return [], ("context_tools is no list of names: it was dropped",)
    return list(value), ()


def valid_record(value: object) -> tuple[Record, tuple[str, ...]]:
    """Return the stored record; an empty one, and a line, when something else is stored."""
    try:
        return Record.from_json(value), ()  # type: ignore[arg-type]  # anything may be stored
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return Record(), ("context_record holds no record of ours: it was dropped",)


def _converted(view: View, value: Any) -> tuple[View, tuple[str, ...]]:
    """Take over what a version without a record stored: how much had left; its lines begin with what leaves next."""
    receipt = value.get("receipt")
    if not receipt or view.record:
        return view, ()
    left = {name: stored_count(receipt.get(name, 0)) for name in ("turns", "steps", "messages", "tokens")}
    record = Record.from_json({"lines": [], "left": left})
    return replace(view, record=record), ("context_view is of an earlier version: its receipt became a record",)


def valid_pending(value: object) -> tuple[Pending | None, tuple[str, ...]]:
    """Return the summary on its way; None, and a line, when something else is stored."""
    try:
        return Pending.from_json(value), ()  # type: ignore[arg-type]  # anything may be stored
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None, ("context_pending holds no summary of ours: it was dropped",)


def _valid(name: str, value: object, checks: Mapping[str, Check]) -> tuple[dict[str, Any], tuple[str, ...]]:
    if not value:
        return {}, ()
    if not isinstance(value, Mapping):
        return {}, (f"{name} is {type(value).__name__}, not a mapping: it was dropped",)
    known = {key: stored for key, stored in value.items() if key in checks}
    kept = {key: stored for key, stored in known.items() if checks[key](stored)}
    return kept, tuple(f"{name}[{key!r}] holds nothing of ours: it was dropped" for key in known if key not in kept)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_optional_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_position(value: object) -> bool:
    return value == {} or (isinstance(value, Mapping) and _is_text(value.get("id")) and _is_count(value.get("index")))


def _is_anchor(value: object) -> bool:
    if value is None or not isinstance(value, Mapping):
        return value is None
    checksum, index = value.get("checksum", 0), value.get("index", 0)
    is_whole = _is_count(index) and type(checksum) is int and 0 <= checksum < CHECKSUM_MODULUS
    return is_whole and _is_checked(value) and _is_optional_text(value.get("id"))


def _is_checked(value: object) -> bool:
    sizes = isinstance(value, Mapping) and _is_count(value.get("tokens")) and _is_count(value.get("estimate"))
    return sizes and isinstance(value, Mapping) and _is_text(value.get("digest"))


def _is_contradicted(value: object) -> bool:
    if not isinstance(value, Mapping) or not _is_text(value.get("model")):
        return False
    return all(map(_is_count, (value.get("tokens"), value.get("estimate"), value.get("reports"))))


def _each(check: Check) -> Check:
    def all_valid(value: object) -> bool:
        return isinstance(value, Mapping) and all(isinstance(key, str) and check(item) for key, item in value.items())

    return all_valid


def _is_limit(value: object) -> bool:
    return _is_count(value) and bool(value)


_COUNTS: dict[str, Check] = {
    "anchor": _is_anchor,
    "checked": _is_checked,
    "contradicted": _is_contradicted,
    "beliefs": _each(lambda value: Belief.from_json(value) is not None),
    "measured": _each(lambda value: isinstance(value, Mapping)),
    "speakers": _each(_is_text),
    "limits": _each(_each(_is_limit)),
    "messages": _is_count,
    "first": _is_optional_text,
    "resets": _is_count,
}

_REPORT: dict[str, Check] = {
    "input_limit": _is_count,
    "total_tokens": _is_count,
    "over_by": _is_count,
    "stopped": _is_text,
}

_GUARD: dict[str, Check] = {
    "compactions": _is_count,
    "dropped_turns": _is_count,
    "ineffective": _is_count,
    "asked": lambda value: value is None or _is_count(value),
    "since": _is_position,
    "reason": _is_text,
    "summarizer": _each(_is_count),
}

MAX_INEFFECTIVE = 2
"""Summaries in a row that failed or freed too little, after which none is tried until the next user message."""

MAX_DOUBLINGS = 6
"""Each further one doubles the wait, up to 64 user messages, so that one that works again is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The `context_*` keys of one conversation, verified for one history."""

    view: View = field(default_factory=View)
    summary: str = ""
    counts: Mapping[str, Any] = field(default_factory=dict)
    """Anchor, beliefs about sizes, counted spans, learned limits and number of messages seen."""

    guard: Mapping[str, Any] = field(default_factory=dict)
    """Compactions, dropped turns, ineffective attempts, position of the latest one, reason, cost of summaries."""

    pending: Pending | None = None
    """The summary that is being written or waits to be shown."""

    faults: tuple[str, ...] = ()
    """What did not match the history and was mended, one line each."""

    @property
    def compactions(self) -> int:
        """Number of reductions so far."""
        return int(self.guard.get("compactions", 0))

    @property
    def failed_summaries(self) -> int:
        """Number of summaries in a row, across user messages, that failed or freed too little."""
        return int(self.guard.get("ineffective", 0))

    def has_given_up(self, messages: Sequence[AnyMessage]) -> bool:
        """True while no summary is tried: for 1, 2, 4, ... user messages after the 2nd, 3rd, 4th, ... failure."""
        failed, asked = self.failed_summaries, self.guard.get("asked")
        if failed < MAX_INEFFECTIVE or (asked is not None and asked >= len(messages)):  # then history was cut
            return False
        wait: int = 2 ** min(failed - MAX_INEFFECTIVE, MAX_DOUBLINGS)
        first = 0 if asked is None else asked + 1
        return sum(isinstance(message, HumanMessage) for message in messages[first:]) < wait

    def measured(self, answering_model: str) -> Measured:
        """What of the history was counted for a model, by the name under which it answers."""
        return Measured.from_json((self.counts.get("measured") or {}).get(answering_model))

    @property
    def since(self) -> Position | None:
        """The last message at the time of the latest compaction."""
        value = self.guard.get("since")
        return Position(id=str(value["id"]), index=int(value["index"])) if value else None

    def to_json(self) -> dict[str, Any]:
        """Return the state update that makes the checked session the stored one."""
        return {
            "context_view": self.view.to_json(),
            "context_summary": self.summary,
            "context_record": self.view.record.to_json(),
            "context_counts": dict(self.counts),
            "context_guard": dict(self.guard),
            "context_pending": self.pending.to_json() if self.pending else {},
        }

    def answering_model(self, model: str) -> str:
        """Name under which a model answered last, else its own name: aliases and fallbacks answer as another one."""
        return str((self.counts.get("speakers") or {}).get(model, model))

    def learned_limit(self, model: str) -> Mapping[str, int]:
        """Limits that the provider stated for a model in this conversation."""
        limits: Mapping[str, Mapping[str, int]] = self.counts.get("limits") or {}
        return limits.get(model, {})


ReadRecord = Callable[[object], tuple[Record, tuple[str, ...]]]
"""`valid_record`, or a memoized form of it."""


def read_session(
    state: Mapping[str, Any] | None, messages: Sequence[AnyMessage], read_record: ReadRecord = valid_record
) -> Session:
    """Read the session and verify every stored position against the history.

    A view whose start is gone (removed, forked, another history) is dropped together with its summary and anchor; the
    plan is then made again from the full history.
    """
    values = state or {}
    counts, count_faults = valid_counts(values.get("context_counts"))
    guard, guard_faults = valid_guard(values.get("context_guard"))
    record, record_faults = read_record(values.get("context_record"))
    view, view_faults = valid_view(values.get("context_view"), record)
    pending, pending_faults = valid_pending(values.get("context_pending"))
    _, report_faults = valid_report(values.get("context_report"))
    session = Session(view=view, counts=counts, guard=guard)
    odd = (*count_faults, *guard_faults, *view_faults, *record_faults, *pending_faults, *report_faults)
    shrunk = (*odd, *_shrunk(session, messages))
    located = _locate(session.view, messages)
    if located is None:
        lost = "the start of the view is no longer in the history: view, summary and anchor were dropped"
        counts = {key: value for key, value in session.counts.items() if key not in {"anchor", "measured"}}
        # Sizes that were reported so far belong to requests that the dropped view made.
        guard = {**session.guard, "since": _position_of_last(messages)}
        return Session(view=begun_anew(session.view), counts=counts, guard=guard, faults=(*shrunk, lost))
    summary, moved = valid_summary(values.get("context_summary"), located)
    if located.start is None and located.record.lines:  # no start says whose history this is: the lines do
        located = _of_present(located, messages)
    first = next((i for i, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    if located != session.view:
        moved = (*moved, "earlier history was edited: the view moved with it")
        located = _of_present(located, messages)
    known = pending.located(messages, located, first) if pending else None
    if pending and known is None:
        shrunk = (*shrunk, "the summary on its way is of messages that are not in this branch: it was dropped")
    return replace(session, view=located, summary=summary, pending=known, faults=(*shrunk, *moved))


def begun_anew(view: View) -> View:
    """Return the view of all that the state holds; the record goes on telling of what was archived."""
    return View(archived=view.archived, record=view.record) if view.archived else View()


def _of_present(view: View, messages: Sequence[AnyMessage]) -> View:
    """Forget the lines of messages that were removed; which of an archived history were, nobody knows."""
    if view.archived:
        return view
    known_ids = (message_id(messages, index) for index in range(len(messages)))
    return replace(view, record=view.record.of_messages(known_ids))


def with_new_pins(session: Session, messages: Sequence[AnyMessage], pins: Collection[int]) -> Session:
    """Show messages that were pinned after they had left the view or had been shortened in it.

    Counts as one compaction, because the prefix changes.

    Args:
        session: the verified session.
        messages: the full history.
        pins: positions of explicit pins; the current user message counts as pinned too.
    """
    view = _unshortened(_with_left(session.view, messages, pins), messages, pins)
    if view is session.view:
        return session
    guard = counted(session, messages, reason="a message that had left is pinned")
    return replace(session, view=view, guard=guard)


def _with_left(view: View, messages: Sequence[AnyMessage], pins: Collection[int]) -> View:
    """Show the pins that left before they were pinned."""
    if view.start is None:
        return view
    shown = {position.index for position in view.pinned}
    first = next((i for i, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    asked = last_user(messages)
    wanted = (*pins, *(() if asked is None else (asked,)))
    new = [index for index in wanted if first <= index < view.start.index and index not in shown]
    if not new:
        return view
    back = set[int]()
    for index in new:
        step = step_at(messages, index, view.start.index)
        back.update(range(step.index, step.stop))
    record = _without(view.record, messages, back - shown)
    return replace(view, pinned=tuple(position_of(messages, i) for i in sorted(shown | back)), record=record)


def _without(record: Record, messages: Sequence[AnyMessage], back: Collection[int]) -> Record:
    """Count what is shown again as left no more: it counts when it leaves the next time."""
    turns = sum(isinstance(messages[index], HumanMessage) for index in back)
    return replace(record, turns=max(0, record.turns - turns), messages=max(0, record.messages - len(back)))


def _unshortened(view: View, messages: Sequence[AnyMessage], pins: Collection[int]) -> View:
    """Show the pins verbatim that were cleared or clamped before they were pinned."""
    if not (view.cleared or view.clamped):
        return view
    pinned = {message_id(messages, index) for index in pins}
    cut = {key for key, clamp in view.clamped.items() if not clamp.of_pin}
    if pinned.isdisjoint(cut | view.cleared):
        return view
    return replace(
        view,
        cleared=view.cleared - pinned,
        clamped={key: clamp for key, clamp in view.clamped.items() if clamp.of_pin or key not in pinned},
    )


def counted(session: Session, messages: Sequence[AnyMessage], *, reason: str, **changes: Any) -> dict[str, Any]:
    """Return the guard after one more compaction at this point of the history."""
    return {
        **session.guard,
        "compactions": session.compactions + 1,
        "since": _position_of_last(messages),
        "reason": reason,
        **changes,
    }


def _position_of_last(messages: Sequence[AnyMessage]) -> dict[str, Any]:
    last = position_of(messages, len(messages) - 1) if messages else None
    return {"id": last.id, "index": last.index} if last else {}


def _locate(view: View, messages: Sequence[AnyMessage]) -> View | None:
    """Return the view with verified positions; None when its start is gone."""
    view = _without_gone(view, messages)
    if view.start is None:
        covered = view.covered.find(messages) if view.covered else None
        return replace(view, covered=None if covered is None else position_of(messages, covered))
    start = view.start.find(messages)
    if start is None:
        return None
    found = ((position, position.find(messages)) for position in view.pinned)
    pinned = tuple(Position(id=p.id, index=index) for p, index in found if index is not None and index < start)
    covered = view.covered.find(messages) if view.covered else None
    return replace(
        view,
        start=Position(id=view.start.id, index=start),
        pinned=tuple(sorted(pinned, key=lambda position: position.index)),
        covered=_covered(view, covered, messages, start, removed=view.start.index - start),
    )


def _without_gone(view: View, messages: Sequence[AnyMessage]) -> View:
    """Forget edits of messages that were removed; the start of the view may be where it was."""
    edited = view.cleared | view.clamped.keys()
    index = view.start.index if view.start else 0
    shown = {message_id(messages, i) for i in range(index, len(messages))} if edited else set()
    if edited <= shown:
        return view
    gone = edited - {message_id(messages, i) for i in range(len(messages))}
    if not gone:
        return view
    clamped = {key: clamp for key, clamp in view.clamped.items() if key not in gone}
    return replace(view, cleared=view.cleared - gone, clamped=clamped)


def _covered(
    view: View, found: int | None, messages: Sequence[AnyMessage], start: int, *, removed: int
) -> Position | None:
    """Where the summary ends; when that message was removed, somewhere before: to cover twice loses nothing."""
    if view.covered is None:
        return None
    if found is not None and found < start:
        return Position(id=view.covered.id, index=found)
    before = min(view.covered.index - max(0, removed), start) - 1
    return position_of(messages, before) if before >= 0 else None


def _shrunk(session: Session, messages: Sequence[AnyMessage]) -> tuple[str, ...]:
    """Say so when history is missing: its first message is gone and it is shorter than it was."""
    seen, first = int(session.counts.get("messages", 0)), session.counts.get("first")
    if len(messages) >= seen or (messages and (messages[0].id or "#0") == first):
        return ()
    lost = (
        f"history has {len(messages)} messages, the state remembers {seen}: if nothing was removed on purpose, "
        "old checkpoints of this thread were deleted"
    )
    return (lost,)
