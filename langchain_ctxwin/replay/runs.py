"""Runs as LangSmith exports them, joined to conversations: one per thread.

A run (`run_type`, `inputs`, `outputs`) holds the conversation up to it, in several forms: an agent's run its whole
history, a model's run one request, a turn's run that turn alone. Of each trace the run that holds most is kept, and a
trace that another one of its thread begins with is dropped; what is left is joined in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.replay.messages import is_pair, read_message

Run = Mapping[str, Any]
# by which LangSmith groups traces into threads
THREAD_KEYS = ("thread_id", "session_id", "conversation_id")
GIVEN, MADE = (
    ("input", "question", "query", "prompt"),
    ("output", "answer", "response", "text"),
)
"""Fields of chains whose input and output are texts."""

ASIDE = ("tool", "retriever", "embedding", "parser", "prompt")
"""Types of runs that are no part of a conversation by themselves."""

Key = tuple[Any, ...]


@dataclass(slots=True)
class _Trace:
    start: str
    messages: list[Any]
    keys: list[Key]
    tools: list[Any]
    chars: int


def is_run(row: Any) -> bool:
    """True for a run of an export."""
    return isinstance(row, Mapping) and "run_type" in row and "inputs" in row


def runs_in(row: Any) -> list[Any]:
    """The run that a row is, or the items of its list `runs`; empty for what is no export."""
    if is_run(row):
        return [row]
    listed = row.get("runs") if isinstance(row, Mapping) else None
    return listed if isinstance(listed, list) and any(map(is_run, listed)) else []


class Traces:
    """Joins runs to conversations, whatever the order in which runs come."""

    def __init__(self, most_chars: int) -> None:
        self._most_chars, self._chars = most_chars, 0
        self._threads: dict[str, dict[str, _Trace]] = {}
        self.unused = 0  # runs of agents and models that hold no messages, and what is no run; those of tools never do
        self.too_many = 0  # runs for which there was no room any more

    def take(self, run: Any, chars: int) -> None:
        """Take up a run, which has about as many characters."""
        messages = _said(run) if is_run(run) else []
        if not messages:
            self.unused += not (is_run(run) and run["run_type"] in ASIDE)
            return
        extra = _mapping(run.get("extra"))
        metadata, invocation = (
            _mapping(extra.get("metadata")),
            _mapping(extra.get("invocation_params")),
        )
        name = str(run.get("trace_id") or run.get("id") or "trace")
        thread = str(
            next((metadata[key] for key in THREAD_KEYS if metadata.get(key)), None)
            or name
        )
        tools = invocation.get("tools") or _mapping(run.get("inputs")).get("tools")
        tools, start = (
            tools if isinstance(tools, list) else [],
            str(run.get("start_time") or ""),
        )
        trace = _Trace(start, messages, list(map(_key, messages)), tools, chars)
        traces = self._threads.setdefault(thread, {})
        self._chars += chars
        if known := traces.pop(name, None):
            trace = self._larger(trace, known)
        for other, one in [
            *traces.items()
        ]:  # of whole histories only the newest stays in memory
            if (
                one.keys[: len(trace.keys)] == trace.keys
                or trace.keys[: len(one.keys)] == one.keys
            ):
                trace = self._larger(trace, traces.pop(other))
        if self._chars > self._most_chars:
            self.too_many += 1
            self._chars -= trace.chars
        else:
            traces[name] = trace

    def _larger(self, one: _Trace, other: _Trace) -> _Trace:
        """The one of two that holds more, with the tools of either; the other leaves."""
        larger, smaller = (
            (one, other) if len(one.messages) > len(other.messages) else (other, one)
        )
        larger.tools, larger.start = (
            larger.tools or smaller.tools,
            min(larger.start, smaller.start),
        )
        self._chars -= smaller.chars
        return larger

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one conversation per thread, as a line of a recording would hold it."""
        for thread, traces in self._threads.items():
            ordered = sorted(traces.values(), key=lambda trace: trace.start)
            messages, keys, systems = list[Any](), list[Key](), set[Key]()
            for trace in ordered:
                first = 0  # each trace repeats its system prompt
                while first < len(trace.keys) and trace.keys[first] in systems:
                    first += 1
                first += _overlap(keys, trace.keys[first:])
                messages += trace.messages[first:]
                keys += trace.keys[first:]
                systems.update(key for key in trace.keys if key[0] == "system")
            tools = next(
                (trace.tools for trace in reversed(ordered) if trace.tools), []
            )
            yield {"id": thread, "messages": messages, "tools": tools}


def _overlap(known: Sequence[Key], new: Sequence[Key]) -> int:
    """The most messages at the end of those that are known with which the new ones begin."""
    sizes = range(min(len(known), len(new)), 0, -1)
    return next(
        (
            size
            for size in sizes
            if known[-size] == new[0] and known[-size:] == new[:size]
        ),
        0,
    )


def _key(said: Any) -> Key:
    """What makes two messages the same one, in whatever forms they are recorded."""
    try:
        (message,) = read_message(said)
    except Exception:  # noqa: BLE001  # what is no message is told when the conversation is read
        return ("", str(said))
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return (
        message.type,
        hash(message.text),
        tuple(str(call["id"]) for call in calls),
        getattr(message, "tool_call_id", None),
    )


def _said(run: Run) -> list[Any]:
    """What a run was given, and what it answered."""
    if run["run_type"] in ASIDE:
        return []
    inputs, made = run.get("inputs"), run.get("outputs")
    given, whole, answer = _listed(inputs), _listed(made), _answer(made)
    if not given:
        return _texts(run, answer)
    if system := _mapping(inputs).get("system"):  # where Anthropic's requests have it
        given = [{"role": "system", "content": system}, *given]
    last = _key(given[-1])
    # a graph returns what it adds
    if whole and not any(_key(one) == last for one in reversed(whole)):
        return [*given, *whole]
    if len(whole) > len(given):  # or its history
        return whole
    return given if answer is None else [*given, answer]


def _texts(run: Run, answer: Any) -> list[Any]:
    """What a chain was asked and answered as texts; only the whole of a trace, its parts hand on all sorts of texts."""
    asked = _text(run.get("inputs"), GIVEN)
    if (
        not asked
        or run.get("parent_run_id")
        or run.get("trace_id", run.get("id")) != run.get("id")
    ):
        return []
    made = run.get("outputs")
    answer = answer or {
        "role": "assistant",
        "content": made if isinstance(made, str) else _text(made, MADE),
    }
    return [
        {"role": "user", "content": asked},
        *([answer] if answer.get("content") else []),
    ]


def _listed(value: Any) -> list[Any]:
    messages = value if isinstance(value, list) else _mapping(value).get("messages")
    if isinstance(messages, str | Mapping):
        messages = [messages]
    if not isinstance(messages, Sequence):
        return []
    # a batch of one
    if (
        len(messages) == 1
        and isinstance(messages[0], list)
        and not is_pair(messages[0])
    ):
        messages = messages[0]
    return list(messages)


def _answer(made: Any) -> Any:
    """The message that a run returned, as models of several libraries return it; else None."""
    about = _mapping(made)
    for path in (
        ("generations", 0, 0, "message"),
        ("choices", 0, "message"),
        ("message",),
        ("output",),
    ):
        found: Any = about
        try:
            for part in path:
                found = found[part]
        except (LookupError, TypeError):
            continue
        if isinstance(found, Mapping):
            return found
    return (
        about if "content" in about and ("role" in about or "type" in about) else None
    )


def _text(value: Any, names: Sequence[str]) -> str:
    about = _mapping(value)
    return next(
        (
            value
            for name in names
            if isinstance(value := about.get(name), str) and value
        ),
        "",
    )


def _mapping(value: Any) -> Run:
    return value if isinstance(value, Mapping) else {}
