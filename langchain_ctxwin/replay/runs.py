"""Runs as LangSmith exports them, joined to conversations: one per thread.

A run (`run_type`, `inputs`, `outputs`) holds the conversation up to it, in several forms: an agent's run its whole
history, a model's run one request, a turn's run that turn alone. Of each trace the run that holds most is kept, and a
trace that another one of its thread begins with is dropped; what is left is joined in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.replay.messages import is_pair, read_message

Run = Mapping[str, Any]
THREAD_KEYS = ("thread_id", "session_id", "conversation_id")  # by which LangSmith groups traces into threads
GIVEN, MADE = ("input", "question", "query", "prompt"), ("output", "answer", "response", "text")
"""Fields of chains whose input and output are texts."""

ASIDE = ("tool", "retriever", "embedding", "parser", "prompt")
"""Types of runs that are no part of a conversation by themselves."""

Key = tuple[Any, ...]

FIRST_PRUNED = 16  # traces of a thread that are held before some are dropped


@dataclass(slots=True)
class _Trace:
    start: str
    messages: list[Any]
    keys: list[Key]
    tools: list[Any]
    chars: int

    def begins(self) -> list[int]:
        """Return a number for each beginning of the trace, the same for the same messages."""
        return [*accumulate(self.keys, lambda before, key: hash((before, key)), initial=0)][1:]


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
        self._most_chars = most_chars
        self._threads: dict[str, dict[str, _Trace]] = {}
        self._enough: dict[str, int] = {}  # traces of a thread at which some are dropped
        self._chars = self._taken = 0
        self.unused = 0  # runs of agents and models that hold no messages, and what is no run; those of tools never do
        self.too_many = 0  # runs for which there was no room any more

    def take(self, run: Any, chars: int) -> None:
        """Take up a run, which has about as many characters."""
        messages = _said(run) if is_run(run) else []
        if not messages:
            self.unused += not (is_run(run) and run["run_type"] in ASIDE)
            return
        extra = _mapping(run.get("extra"))
        metadata, invocation = _mapping(extra.get("metadata")), _mapping(extra.get("invocation_params"))
        thread = next((metadata[name] for name in THREAD_KEYS if metadata.get(name)), None)
        thread = str(thread or run.get("trace_id") or run.get("id") or "trace")
        tools = invocation.get("tools") or _mapping(run.get("inputs")).get("tools")
        tools, start = tools if isinstance(tools, list) else [], str(run.get("start_time") or "")
        if self._chars + chars > self._most_chars and thread in self._threads:
            self._prune(thread)
        if self.too_many or self._chars + chars > self._most_chars:
            self.too_many += 1
            return
        self._taken += 1
        traces = self._threads.setdefault(thread, {})
        name = str(run.get("trace_id") or run.get("id") or self._taken)
        trace = traces.setdefault(name, _Trace(start, [], [], [], 0))
        trace.start, trace.tools = min(trace.start, start), trace.tools or tools
        if len(messages) > len(trace.messages):
            self._chars += chars - trace.chars
            trace.messages, trace.keys, trace.chars = messages, list(map(_key, messages)), chars
        if len(traces) >= self._enough.get(thread, FIRST_PRUNED):
            self._prune(thread)

    def _prune(self, thread: str) -> None:
        """Drop traces with which another one begins: of whole histories only the newest stay in memory.

        It waits until there are twice as many as it left the last time, so that the time grows with the traces alone.
        """
        traces = self._threads[thread]
        kept = self._threads[thread] = _without_beginnings(traces)
        self._enough[thread] = max(FIRST_PRUNED, 2 * len(kept))
        self._chars -= sum(trace.chars for name, trace in traces.items() if name not in kept)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one conversation per thread, as a line of a recording would hold it."""
        for thread in self._threads:
            self._prune(thread)
            ordered = sorted(self._threads[thread].values(), key=lambda trace: trace.start)
            messages, keys, systems = list[Any](), list[Key](), set[Key]()
            for trace in ordered:
                first = 0  # each trace repeats its system prompt
                while first < len(trace.keys) and trace.keys[first] in systems:
                    first += 1
                first += _overlap(keys, trace.keys[first:])
                messages += trace.messages[first:]
                keys += trace.keys[first:]
                systems.update(key for key in trace.keys if key[0] == "system")
            tools = next((trace.tools for trace in reversed(ordered) if trace.tools), [])
            yield {"id": thread, "messages": messages, "tools": tools}


def _without_beginnings(traces: Mapping[str, _Trace]) -> dict[str, _Trace]:
    """The traces with which no other one begins, the tools of those that are left out with them."""
    begins = {name: trace.begins() for name, trace in traces.items()}
    ends = dict[int, str]()
    for name in sorted(traces, key=lambda name: (traces[name].start, name)):
        same = traces[ends.setdefault(begins[name][-1], name)]
        same.tools = same.tools or traces[name].tools
    for name in [*ends.values()]:
        for beginning in begins[name][:-1]:
            if shorter := ends.pop(beginning, None):
                traces[name].tools = traces[name].tools or traces[shorter].tools
    kept = {*ends.values()}
    return {name: trace for name, trace in traces.items() if name in kept}


def _overlap(known: Sequence[Key], new: Sequence[Key]) -> int:
    """The most messages at the end of those that are known with which the new ones begin (Knuth, Morris, Pratt)."""
    joined = [*new, (), *known[max(0, len(known) - len(new)) :]]  # no key is empty
    sizes = [0]
    for key in joined[1:]:
        size = sizes[-1]
        while size and joined[size] != key:
            size = sizes[size - 1]
        sizes.append(size + (joined[size] == key))
    return sizes[-1]


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
    if whole and not any(_key(one) == last for one in reversed(whole)):  # a graph returns what it adds
        return [*given, *whole]
    if len(whole) > len(given):  # or its history
        return whole
    return given if answer is None else [*given, answer]


def _texts(run: Run, answer: Any) -> list[Any]:
    """What a chain was asked and answered as texts; only the whole of a trace, its parts hand on all sorts of texts."""
    asked = _text(run.get("inputs"), GIVEN)
    if not asked or run.get("parent_run_id") or run.get("trace_id", run.get("id")) != run.get("id"):
        return []
    made = run.get("outputs")
    answer = answer or {"role": "assistant", "content": made if isinstance(made, str) else _text(made, MADE)}
    return [{"role": "user", "content": asked}, *([answer] if answer.get("content") else [])]


def _listed(value: Any) -> list[Any]:
    messages = value if isinstance(value, list) else _mapping(value).get("messages")
    if isinstance(messages, str | Mapping):
        messages = [messages]
    if not isinstance(messages, Sequence):
        return []
    if len(messages) == 1 and isinstance(messages[0], list) and not is_pair(messages[0]):  # a batch of one
        messages = messages[0]
    return list(messages)


def _answer(made: Any) -> Any:
    """The message that a run returned, as models of several libraries return it; else None."""
    about = _mapping(made)
    for path in (("generations", 0, 0, "message"), ("choices", 0, "message"), ("message",), ("output",)):
        found: Any = about
        try:
            for part in path:
                found = found[part]
        except (LookupError, TypeError):
            continue
        if isinstance(found, Mapping):
            return found
    return about if "content" in about and ("role" in about or "type" in about) else None


def _text(value: Any, names: Sequence[str]) -> str:
    about = _mapping(value)
    return next((value for name in names if isinstance(value := about.get(name), str) and value), "")


def _mapping(value: Any) -> Run:
    return value if isinstance(value, Mapping) else {}
