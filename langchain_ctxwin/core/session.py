"""The session state behind a request: read from JSON, checked against the history, written back as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.calls import is_user
from langchain_ctxwin.core.history import History
from langchain_ctxwin.core.pins import last_user
from langchain_ctxwin.core.record import MAX_COUNT, Record, stored_count
from langchain_ctxwin.core.sizing import Sizes
from langchain_ctxwin.core.turns import CHECKSUM_MODULUS, checksum
from langchain_ctxwin.core.view import (
    Position,
    View,
    first_after_system,
    message_id,
    messages_left,
    position_of,
    with_checksum,
)

MAX_INEFFECTIVE = 2  # failed summaries in a row after which none is tried until the next user message
MAX_DOUBLINGS = 6  # each further one doubles the wait, up to 64 user messages, so that one that works again is found


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One summary on its way: at most one per conversation, valid only for the history it was begun for."""

    key: str  # names the work for every process: conversation and content
    start: Position  # first message that the summary adds to the one before it
    through: Position  # last message that it covers
    digest: str  # fingerprint of the messages from `start` to `through`
    since_seconds: float  # when it was begun, seconds since the epoch
    max_tokens: int  # length asked for
    text: str = ""  # the finished summary; empty while it is being written

    @property
    def stop(self) -> int:
        """Position after the last message that it covers."""
        return self.through.index + 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "key": self.key,
            "start": self.start.to_json(),
            "through": self.through.to_json(),
            "digest": self.digest,
            "since": self.since_seconds,
            "max_tokens": self.max_tokens,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Pending | None:
        """Read the JSON form; None when there is no summary on its way. Raises like `View.from_json`."""
        if not value or "key" not in value:
            return None
        since = float(value["since"])
        if not 0 <= since <= MAX_COUNT:
            raise ValueError("no time")
        return cls(
            key=str(value["key"]),
            start=Position.from_json(value["start"]),
            through=Position.from_json(value["through"]),
            digest=str(value["digest"]),
            since_seconds=since,
            max_tokens=stored_count(value["max_tokens"]),
            text=str(value.get("text") or ""),
        )

    def matches(self, messages: Sequence[AnyMessage]) -> bool:
        """True when the messages are still what they were when it was begun; costs time, so ask before showing it."""
        return content_digest(messages, self.start.index, self.stop) == self.digest

    def located(self, messages: Sequence[AnyMessage], view: View, first: int) -> Pending | None:
        """Return it with verified positions; None when its messages left this branch, or are summarized already."""
        start, through = self.start.find(messages), self.through.find(messages)
        if start is None or through is None or not start <= through < len(messages) - 1:  # what follows it was removed
            return None
        if start != uncovered(view, first):
            return None
        return replace(self, start=position_of(messages, start), through=position_of(messages, through))


def uncovered(view: View, first: int) -> int:
    """Return the position of the first message that no summary covers; `first` is the first one of the history."""
    return max(first, view.covered.index + 1) if view.covered else first


def content_digest(messages: Sequence[AnyMessage], start: int, stop: int) -> str:
    """Return a fingerprint of texts and calls of the messages in `[start, stop)`, whatever ids they have now."""
    digest = hashlib.blake2b(digest_size=12)
    for message in messages[start:stop]:
        calls = [[call["name"], call["args"]] for call in message.tool_calls] if isinstance(message, AIMessage) else []
        digest.update(json.dumps([message.type, message.content, calls], default=str).encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The `context_*` keys of one conversation, verified for one history."""

    view: View = field(default_factory=View)
    summary: str = ""
    counts: Mapping[str, Any] = field(default_factory=dict)  # what was learned of sizes and limits: see `_CHECKS`
    guard: Mapping[str, Any] = field(default_factory=dict)  # what became of compactions and summaries
    pending: Pending | None = None  # the summary that is being written or waits to be shown
    faults: tuple[str, ...] = ()  # what did not match the history and was mended, one line each
    has_edits: bool = False  # something that left was edited or removed since: the record has to be written anew

    @property
    def compactions(self) -> int:
        """Number of reductions so far."""
        return int(self.guard.get("compactions", 0))

    @property
    def failed_summaries(self) -> int:
        """Number of summaries in a row, across user messages, that failed or freed too little."""
        return int(self.guard.get("ineffective", 0))

    @property
    def since(self) -> Position | None:
        """The last message at the time of the latest compaction."""
        return _stored_position(self.guard.get("since"))

    @property
    def unbound(self) -> Position | None:
        """The last message whose reasoning is left out, where that is not decided by the latest compaction."""
        return _stored_position(self.guard.get("unbound"))

    @property
    def binding_model(self) -> str:
        """Name of the model whose API refused reasoning that is tied to another prefix; empty while none did."""
        return str(self.guard.get("binding_model", ""))

    def has_given_up(self, messages: Sequence[AnyMessage]) -> bool:
        """True while no summary is tried: for 1, 2, 4, ... user messages after the 2nd, 3rd, 4th, ... failure."""
        failed, asked = self.failed_summaries, self.guard.get("asked")
        if failed < MAX_INEFFECTIVE or (asked is not None and asked >= len(messages)):  # then history was cut
            return False
        wait: int = 2 ** min(failed - MAX_INEFFECTIVE, MAX_DOUBLINGS)
        first = 0 if asked is None else asked + 1
        return sum(map(is_user, messages[first:])) < wait

    def answering_model(self, model: str) -> str:
        """Name under which a model answered last, else its own name: aliases and fallbacks answer as another one."""
        return str((self.counts.get("speakers") or {}).get(model, model))

    def learned_limit(self, model: str) -> Mapping[str, int]:
        """Limits that the provider stated for a model in this conversation."""
        limits: Mapping[str, Mapping[str, int]] = self.counts.get("limits") or {}
        return limits.get(model, {})

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


def _stored_position(value: Mapping[str, Any] | None) -> Position | None:
    return Position(id=str(value["id"]), index=int(value["index"])) if value else None


# ---- what is stored: each value on its own, what is no value of ours leaves with a line -----------------------------

Faults = tuple[str, ...]
Check = Callable[[Any], bool]
# What reading a value raises that is not ours.
BROKEN = (AttributeError, KeyError, TypeError, ValueError, OverflowError)


def valid_keys(name: str, value: object) -> tuple[dict[str, Any], Faults]:
    """Return what is valid of a state key that is in `_CHECKS`, and a line for each key of it that is not."""
    if not value:
        return {}, ()
    if not isinstance(value, Mapping):
        return {}, (f"{name} is {type(value).__name__}, not a mapping: it was dropped",)
    checks = _CHECKS[name]
    known = {key: stored for key, stored in value.items() if key in checks}
    kept = {key: stored for key, stored in known.items() if checks[key](stored)}
    return kept, tuple(f"{name}[{key!r}] holds nothing of ours: it was dropped" for key in known if key not in kept)


def valid_view(value: Any, record: Record | None = None) -> tuple[View, Faults]:
    """Return the stored view with its record; the whole history, and a line, when it is not one."""
    try:
        view = View.from_json(value or {}, record)
    except BROKEN:
        return View(), ("context_view holds no view of ours: it was dropped, the whole history counts",)
    if view.record.lines and not (view.start or view.cleared or view.clamped):
        told = "context_record tells of nothing that left the view: it was dropped"
        return replace(view, record=Record()), (told,)
    return view, ()


def valid_record(value: Any) -> tuple[Record, Faults]:
    """Return the stored record; an empty one, and a line, when something else is stored."""
    try:
        return Record.from_json(value), ()
    except BROKEN:
        return Record(), ("context_record holds no record of ours: it was dropped",)


def valid_tools(value: object) -> tuple[list[str], Faults]:
    """Return the stored names of tools; none, and a line, when it is anything but a list of texts."""
    if not value:
        return [], ()
    if not isinstance(value, list | tuple) or not all(map(_is_text, value)):
        return [], ("context_tools is no list of names: it was dropped",)
    return list(value), ()


def _valid_pending(value: Any) -> tuple[Pending | None, Faults]:
    try:
        return Pending.from_json(value), ()
    except BROKEN:
        return None, ("context_pending holds no summary of ours: it was dropped",)


def _valid_summary(value: object, view: View) -> tuple[str, Faults]:
    if not value:
        return "", ()
    if not isinstance(value, str):
        return "", (f"context_summary is {type(value).__name__}, not a text: it was dropped",)
    if view.start is None and view.covered is None:
        return "", ("context_summary stands for nothing that left the view: it was dropped",)
    return value, ()


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(least: int = 0, most: int = MAX_COUNT) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _has(checks: Mapping[str, Check], optional: Collection[str] = ()) -> Check:
    """A mapping with these keys, whatever others it has."""

    def holds(value: object) -> bool:
        return isinstance(value, Mapping) and all(
            check(value[key]) if key in value else key in optional for key, check in checks.items()
        )

    return holds


def _each(check: Check) -> Check:
    return lambda value: (
        isinstance(value, Mapping) and all(isinstance(key, str) and check(item) for key, item in value.items())
    )


def _is_position(value: object) -> bool:
    return value == {} or _has({"id": _is_text, "index": _is_count})(value)


def _are_sizes(value: Any) -> bool:
    try:
        Sizes.from_json(value)
    except BROKEN:
        return False
    return True


_is_count = _is_number()
_SIZES = {"tokens": _is_count, "estimate": _is_count}
_CHECKED = {**_SIZES, "digest": _is_text}
_ANCHOR = {**_CHECKED, "id": _or_none(_is_text), "index": _is_count, "checksum": _is_number(0, CHECKSUM_MODULUS - 1)}

_CHECKS: dict[str, dict[str, Check]] = {
    "context_counts": {
        "anchor": _or_none(_has(_ANCHOR, optional=("id", "index", "checksum"))),
        "checked": _has(_CHECKED),
        "sizes": _each(_are_sizes),
        "speakers": _each(_is_text),
        "limits": _each(_each(_is_number(1))),
        "media": _each(_each(_is_number(1))),
        "messages": _is_count,
        "first": _or_none(_is_text),
        "resets": _is_count,
    },
    "context_guard": {
        **dict.fromkeys(("compactions", "dropped_turns", "ineffective"), _is_count),
        "asked": _or_none(_is_count),
        **dict.fromkeys(("since", "unbound"), _is_position),
        "reason": _is_text,
        "binding_model": _is_text,
        "summarizer": _each(_is_count),
    },
    "context_report": {**dict.fromkeys(("input_limit", "total_tokens", "over_by"), _is_count), "stopped": _is_text},
}


# ---- the stored session in this history: every position is verified -------------------------------------------------

ReadRecord = Callable[[object], tuple[Record, Faults]]  # `valid_record`, or a memoized form of it


def read_session(
    state: Mapping[str, Any] | None,
    messages: Sequence[AnyMessage],
    read_record: ReadRecord = valid_record,
    checksum_of: Callable[[list[AnyMessage]], int] = checksum,
) -> Session:
    """Read the session and verify every stored position against the history.

    A view whose start is gone (removed, forked, another history) is dropped together with its summary and anchor; the
    plan is then made again from the full history. Where something that left was edited or removed, summary and record
    are dropped, for they may tell of it; the measure writes the record anew.
    """
    values = state or {}
    counts, count_faults = valid_keys("context_counts", values.get("context_counts"))
    guard, guard_faults = valid_keys("context_guard", values.get("context_guard"))
    record, record_faults = read_record(values.get("context_record"))
    view, view_faults = valid_view(values.get("context_view"), record)
    pending, pending_faults = _valid_pending(values.get("context_pending"))
    _, report_faults = valid_keys("context_report", values.get("context_report"))
    faults = [*count_faults, *guard_faults, *view_faults, *record_faults, *pending_faults, *report_faults]
    seen, first_id = int(counts.get("messages", 0)), counts.get("first")
    if len(messages) < seen and not (messages and message_id(messages, 0) == first_id):
        faults.append(
            f"history has {len(messages)} messages, the state remembers {seen}: if nothing was removed on purpose, "
            "old checkpoints of this thread were deleted"
        )
    located = _locate(view, messages)
    if located is None:
        lost = "the start of the view is no longer in the history: view, summary and anchor were dropped"
        counts = {key: value for key, value in counts.items() if key != "anchor"}
        # Sizes that were reported so far belong to requests that the dropped view made.
        guard = _since_now(guard, messages)
        return Session(counts=counts, guard=guard, faults=(*faults, lost))
    summary, moved = _valid_summary(values.get("context_summary"), located)
    is_edited = view.left_checksum not in {None, checksum_of(messages_left(located, messages))}
    if is_edited:
        faults.append("what had left the view was edited or removed: summary and record were dropped")
        located, summary = replace(located, record=Record(), covered=None, covered_tokens=0), ""
    is_moved, first = located != view, first_after_system(messages)
    # Without a start nothing says whose history this is but the lines of the record.
    if is_moved or (located.start is None and located.record.lines):
        located = _of_present(located, messages)
    if not is_edited and (is_moved or located != view):
        moved = (*moved, "earlier history was edited: the view moved with it")
    known = pending.located(messages, located, first) if pending else None
    if pending and known is None:
        faults.append("the summary on its way is of messages that are not in this branch: it was dropped")
    return Session(
        view=located,
        summary=summary,
        counts=counts,
        guard=guard,
        pending=known,
        faults=(*faults, *moved),
        has_edits=is_edited,
    )


def counted(session: Session, messages: Sequence[AnyMessage], *, reason: str, **changes: Any) -> dict[str, Any]:
    """Return the guard after one more compaction at this point of the history."""
    return {**_since_now(session.guard, messages), "compactions": session.compactions + 1, "reason": reason, **changes}


def _since_now(guard: Mapping[str, Any], messages: Sequence[AnyMessage]) -> dict[str, Any]:
    """The guard of a request that begins anew: all reasoning so far is tied to another beginning."""
    kept = {key: value for key, value in guard.items() if key != "unbound"}
    return {**kept, "since": last_position(messages)}


def last_position(messages: Sequence[AnyMessage]) -> dict[str, Any]:
    """Return the stored form of the position of the newest message; empty when there is none."""
    return position_of(messages, len(messages) - 1).to_json() if messages else {}


def _of_present(view: View, messages: Sequence[AnyMessage]) -> View:
    """Forget the lines of messages that were removed."""
    return replace(view, record=view.record.of_messages(message_id(messages, i) for i in range(len(messages))))


def _locate(view: View, messages: Sequence[AnyMessage]) -> View | None:
    """Return the view with verified positions; None when its start is gone."""
    view = _without_gone(view, messages)
    covered = view.covered.find(messages) if view.covered else None
    if view.start is None:
        return replace(view, covered=None if covered is None else position_of(messages, covered))
    start = view.start.find(messages)
    if start is None:
        return None
    found = ((position.id, position.find(messages)) for position in view.pinned)
    pinned = sorted((index, key) for key, index in found if index is not None and index < start)
    if view.covered is not None and (covered is None or covered >= start):
        # The message where the summary ends was removed: it ended before. To cover twice loses nothing.
        covered = min(view.covered.index - max(0, view.start.index - start), start) - 1
    return replace(
        view,
        start=position_of(messages, start),
        pinned=tuple(Position(id=key, index=index) for index, key in pinned),
        covered=position_of(messages, covered) if covered is not None and covered >= 0 else None,
    )


def _without_gone(view: View, messages: Sequence[AnyMessage]) -> View:
    """Forget edits of messages that were removed; the start of the view may be where it was."""
    edited = view.cleared | view.clamped.keys()
    begin = view.start.index if view.start else 0
    if not edited or edited <= {message_id(messages, i) for i in range(begin, len(messages))}:
        return view
    gone = edited - {message_id(messages, i) for i in range(len(messages))}
    if not gone:
        return view
    clamped = {key: clamp for key, clamp in view.clamped.items() if key not in gone}
    return replace(view, cleared=view.cleared - gone, clamped=clamped)


def with_new_pins(session: Session, history: History, pins: Collection[int]) -> Session:
    """Show messages that were pinned after they had left the view or had been shortened in it.

    Counts as one compaction, because the prefix changes. The current user message counts as pinned, too.
    """
    messages, view = history.messages, _with_left(session.view, history, pins)
    if view.cleared or view.clamped:  # pins that were shortened before they were pinned are shown verbatim
        pinned = {message_id(messages, index) for index in pins}
        kept = {key: clamp for key, clamp in view.clamped.items() if clamp.of_pin or key not in pinned}
        if view.cleared & pinned or len(kept) < len(view.clamped):
            view = replace(view, cleared=view.cleared - pinned, clamped=kept)
    if view is session.view:
        return session
    guard = counted(session, messages, reason="a message that had left is pinned")
    return replace(session, view=with_checksum(view, messages), guard=guard)


def _with_left(view: View, history: History, pins: Collection[int]) -> View:
    """Show the pins that left before they were pinned; they count as left when they leave the next time."""
    if view.start is None:
        return view
    messages, asked = history.messages, last_user(history.messages)
    shown = {position.index for position in view.pinned}
    wanted = {*pins, *(() if asked is None else (asked,))} - shown
    back = history.in_steps(index for index in wanted if history.first <= index < view.start.index)
    back = {index for index in back if index < view.start.index}
    if not back:
        return view
    fresh, record = back - shown, view.record
    record = replace(record, messages=max(0, record.messages - len(fresh)))
    return replace(view, pinned=tuple(position_of(messages, i) for i in sorted(shown | back)), record=record)
