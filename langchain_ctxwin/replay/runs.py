"""Runs as LangSmith exports them, joined to conversations: one per thread.

A run (`run_type`, `inputs`, `outputs`) holds the conversation up to it: an agent's run its whole history, a model's run
one request, a turn's run that turn alone. Of each trace the run that holds most is kept; the traces of a thread are
joined in time, without what the one before has already said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.replay.messages import is_pair, read_message

# by which LangSmith groups traces into threads
THREAD_KEYS = ("thread_id", "session_id", "conversation_id")

ANSWERS = (
    ("generations", 0, 0, "message"),
    ("choices", 0, "message"),
    ("message",),
    ("output",),
)
"""Where models of several libraries return their message."""

ASIDE = ("tool", "retriever", "embedding", "parser", "prompt")
"""Types of runs that are no part of a conversation by themselves."""

Key = tuple[Any, ...]


@dataclass(slots=True)
class _Trace:
    start: str
    messages: list[Any] = field(default_factory=list)
    tools: list[Any] = field(default_factory=list)


def is_run(row: Any) -> bool:
    """True for a run of an export."""
    return isinstance(row, Mapping) and "run_type" in row and "inputs" in row


def runs_in(row: Any) -> list[Any]:
    """The run that a row is, or the items of its list `runs`; empty for what is no export."""
    listed = row.get("runs") if isinstance(row, Mapping) else None
    if is_run(row):
        return [row]
    return [*filter(is_run, listed)] if isinstance(listed, list) else []


def threads_of(runs: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one conversation per thread, as a line of a recording would hold it."""
    threads: dict[str, dict[str, _Trace]] = {}
    for run in runs:
        if messages := _said(run):
            extra = _mapping(run.get("extra"))
            metadata = _mapping(extra.get("metadata"))
            invocation = _mapping(extra.get("invocation_params"))
            name = str(run.get("trace_id") or run.get("id"))
            named = (metadata[key] for key in THREAD_KEYS if metadata.get(key))
            start = str(run.get("start_time") or "")
            traces = threads.setdefault(str(next(named, name)), {})
            trace = traces.setdefault(name, _Trace(start))
            trace.messages = max(trace.messages, messages, key=len)
            trace.start = min(trace.start, start)
            trace.tools = trace.tools or invocation.get("tools") or []
    for thread, traces in threads.items():
        ordered = sorted(traces.values(), key=lambda trace: trace.start)
        tools = next((trace.tools for trace in reversed(ordered) if trace.tools), [])
        yield {"id": thread, "messages": _joined(ordered), "tools": tools}


def _joined(traces: Sequence[_Trace]) -> list[Any]:
    """The messages of all traces, without the history that a trace repeats before what is new in it."""
    messages, keys = list[Any](), list[Key]()
    for trace in traces:
        new, first = [_key(said) for said in trace.messages], 0
        # each trace repeats its system prompt
        while first < len(new) and new[first][0] == "system" and new[first] in keys:
            first += 1
        spoken = [key for key in keys if key[0] != "system"]
        if new[first:][: len(spoken)] == spoken:
            first += len(spoken)
        messages += trace.messages[first:]
        keys += new[first:]
    return messages


def _key(said: Any) -> Key:
    """The parts by which two recorded messages are the same, whatever their form."""
    try:
        message = read_message(said)[0]
    except Exception:  # noqa: BLE001  # what is no message is told when the conversation is read
        return ("", str(said))
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    keys = tuple(call["id"] for call in calls)
    return (message.type, message.text, keys, getattr(message, "tool_call_id", None))


def _said(run: Mapping[str, Any]) -> list[Any]:
    """The input messages of a run, and its answer."""
    if run["run_type"] in ASIDE:
        return []
    inputs, made = run.get("inputs"), run.get("outputs")
    input_messages, whole, answer = _listed(inputs), _listed(made), _answer(made)
    if not input_messages:
        return []
    if system := _mapping(inputs).get("system"):  # where Anthropic's requests have it
        input_messages = [{"role": "system", "content": system}, *input_messages]
    last = _key(input_messages[-1])
    # a graph returns what it adds
    if whole and not any(_key(one) == last for one in reversed(whole)):
        return [*input_messages, *whole]
    if len(whole) > len(input_messages):  # or its history
        return whole
    return input_messages if answer is None else [*input_messages, answer]


def _listed(value: Any) -> list[Any]:
    messages = value if isinstance(value, list) else _mapping(value).get("messages")
    if isinstance(messages, str | Mapping):
        return [messages]
    if not isinstance(messages, list):
        return []
    # a batch of one
    is_batch = len(messages) == 1 and isinstance(messages[0], list)
    return messages[0] if is_batch and not is_pair(messages[0]) else messages


def _answer(made: Any) -> Any:
    """The message that a run returned; else None."""
    for path in ANSWERS:
        answer = made
        try:
            for part in path:
                answer = answer[part]
        except (LookupError, TypeError):
            continue
        if isinstance(answer, Mapping):
            return answer
    about = _mapping(made)
    return about if "content" in about and about.keys() & {"role", "type"} else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
