"""Recorded conversations out of files and databases: OpenAI chat, LangChain messages, LangSmith runs, checkpoints.

    one conversation a line     {"id": ..., "messages": [...], "tools": [...]}   .jsonl, .jsonl.gz
    one message a line          {"role": "user", "content": ...}                 the same; the file is a conversation
    one run a line              {"run_type": ..., "inputs": ..., "outputs": ...} the same; a conversation per thread
    one conversation a file     [message, ...] or {"messages": [...]}            .json, .json.gz; also a list of them
    runs in a file              [run, ...], {"runs": [...]} or one run           the same; a conversation per thread
    LangGraph's checkpoints     a SQLite file, postgresql://...                  a conversation per thread

Files are read line by line. What cannot be read is told with file and line, and left out; nothing else is.

A run as LangSmith exports it (`run_type`, `inputs`, `outputs`) holds the conversation up to it, in several forms: an
agent's run its whole history, a model's run one request, a turn's run that turn alone. Of each trace the run that holds
most is kept, and a trace that another one of its thread begins with is dropped; what is left is joined in time.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin.core.calls import call_ids
from langchain_ctxwin.errors import PATH, ConfigError, expect_each
from langchain_ctxwin.replay.messages import is_pair, loads, read_message, short
from langchain_ctxwin.replay.threads import is_address, is_database, shown_address, thread_states

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
SIDE_FILES = ("-wal", "-shm", "-journal")  # stand beside a SQLite database that is in use

# UTF-32 comes first, because its mark begins with that of UTF-16
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
MAX_LINE_CHARS = 200_000_000  # of one conversation; that of a million-token agent has some five million
MOST_NUMBERS = 10  # messages of one conversation that a fault lists

Tell = Callable[[str], None]
"""Is told what was left out, and why."""

Row = tuple[str, str, Any]
"""The name of a conversation that has none of its own, the place to tell, and what stands there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One recorded conversation."""

    name: str
    messages: tuple[AnyMessage, ...]
    tools: tuple[Any, ...] = ()
    """The definitions that its requests carried, where the recording has them."""

    @property
    def begins(self) -> int:
        """Number of its leading system messages; what follows them is its history."""
        messages = self.messages
        return next((i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages))


def read_conversations(
    paths: Iterable[str | Path] | str | Path, *, tell: Tell = lambda _: None
) -> Iterator[Conversation]:
    """Yield the conversations in files and folders, in order; of those with one name, all but the first are numbered.

    Args:
        paths: files, folders, of which every file that is known is read, or addresses of Postgres servers; also one
            alone.
        tell: is told of each line that could not be read, `file:line: why`.

    Raises:
        ConfigError: a path is missing or of an unknown kind, or cannot be read; in a folder that is told.

    Examples:
        ```python
        for conversation in read_conversations(["runs/"], tell=print):
            ...
        ```
    """
    several = [paths] if isinstance(paths, PATH) else paths
    taken = set[str]()
    for place, is_named in _places(expect_each(several, PATH, "paths", "paths of files or folders"), tell):
        try:
            is_stored = isinstance(place, str) or is_database(place)
            for found in _of_database(place, tell) if is_stored else _of_file(Path(place), tell):
                numbered = (found.name if number == 1 else f"{found.name} ({number})" for number in count(1))
                name = next(name for name in numbered if name not in taken)
                taken.add(name)
                messages = [one.model_copy(update={"id": f"{name}-{i}"}) for i, one in enumerate(found.messages)]
                yield replace(found, name=name, messages=tuple(messages))
        except ConfigError as error:
            if is_named:
                raise
            tell(str(error))


def _places(paths: Iterable[str | Path], tell: Tell) -> list[tuple[str | Path, bool]]:
    """The files and addresses, checked before any of them is read, and whether they were named themselves."""
    found, known = list[tuple[str | Path, bool]](), ", ".join(SUFFIXES)
    for given in paths:
        place = Path(given)
        if is_address(given):
            found.append((str(given), True))
        elif place.is_dir():
            files = [path for path in sorted(place.rglob("*")) if path.is_symlink() or not path.is_dir()]
            read = [path for path in files if _is_known(path)]
            if not read:
                raise ConfigError(f"{place} holds no SQLite database, and no file that ends in {known}")
            if others := [path for path in files if path not in {*read} and not path.name.endswith(SIDE_FILES)]:
                tell(f"{place}: left out {len(others):,} files of other kinds, such as {others[0].name}")
            found += [(path, False) for path in read]
        elif not place.exists():
            raise ConfigError(f"{place} does not exist: give files or folders with recorded conversations")
        elif not _is_known(place, is_named=True):
            raise ConfigError(f"{place}: recorded conversations are SQLite databases, or end in {known}")
        else:
            found.append((place, True))
    return found


def _is_known(path: Path, *, is_named: bool = False) -> bool:
    try:
        return path.is_file() and (path.name.lower().endswith(SUFFIXES) or is_database(path))
    except ConfigError:  # it cannot be opened
        if is_named:
            raise
        return False


def _of_database(place: str | Path, tell: Tell) -> Iterator[Conversation]:
    shown, is_empty = shown_address(place) if is_address(place) else str(place), True
    for thread, state in thread_states(place, tell=tell):
        at, is_empty = f"{shown}: thread {thread}", False
        if "archived" in state:
            tell(f"{at}: {state['archived']:,} older messages were archived to a store that is not here")
        if conversation := _conversation({"id": thread, "messages": state["messages"]}, thread, at, tell):
            yield conversation
    if is_empty:
        tell(f"{shown}: no thread that can be read")


def _of_file(path: Path, tell: Tell) -> Iterator[Conversation]:
    """The conversations of a file; messages in lines of their own are one, and runs are joined."""
    loose, places, traces = list[Any](), list[str](), Traces()
    for name, place, row in _rows(path, tell):
        is_message = "messages" not in row and ("role" in row or "type" in row) if isinstance(row, Mapping) else False
        if runs := _runs_in(row):
            for run in runs:
                traces.take(run)
        elif is_message or is_pair(row):
            loose.append(row)
            places.append(place)
        elif conversation := _conversation(row, name, place, tell):
            yield conversation
    for joined in traces.rows():
        if conversation := _conversation(joined, path.name, f"{path}: thread {joined['id']}", tell):
            yield conversation
    if traces.unused:
        tell(f"{path}: left out {traces.unused:,} runs that hold no messages")
    if loose and (conversation := _conversation(loose, path.name, str(path), tell, places)):
        yield conversation


def _rows(path: Path, tell: Tell) -> Iterator[Row]:
    """What stands in the lines of a file, or in all of it: one conversation, or a list of conversations or runs."""
    lines = _lines(path, tell)
    if ".jsonl" not in path.name.lower():
        text = "".join(line for _, line in lines)
        for row in _parsed(text, str(path), tell) if text else ():
            if isinstance(row, list) and any(map(_is_whole, row)):
                yield from ((f"{path.name}:{n}", f"{path}: item {n}", one) for n, one in enumerate(row, 1))
            else:
                yield path.name, str(path), row
        return
    for number, line in lines:
        place = f"{path}:{number}"
        if len(line) > MAX_LINE_CHARS:
            tell(f"{place}: {len(line):,} characters are no conversation")
        else:
            yield from ((f"{path.name}:{number}", place, row) for row in _parsed(line, place, tell))


def _parsed(text: str, place: str, tell: Tell) -> Iterator[Any]:
    try:
        yield loads(text)
    except (ValueError, RecursionError) as error:
        tell(f"{place}: no JSON ({short(error)})")


def _is_whole(item: Any) -> bool:
    """True for a conversation or a run, where a message could stand too."""
    if isinstance(item, Mapping):
        return _is_run(item) or "messages" in item
    return isinstance(item, list) and not is_pair(item)


def _lines(path: Path, tell: Tell) -> Iterator[tuple[int, str]]:
    """The lines that hold something, with their numbers; a file that breaks off ends there."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    is_empty = True
    try:
        with opener(path, "rb") as file:
            start = file.read(4)
        encoding = MARKS.get(start) or MARKS.get(start[:2]) or "utf-8"
        # bytes that are no UTF-8 become surrogates: U+FFFD may stand in the file itself
        errors = "surrogateescape" if encoding == "utf-8" else "replace"
        with opener(path, "rt", encoding=encoding, errors=errors) as file:
            for number, given in enumerate(file, 1):
                line = given if errors == "replace" else given.lstrip("\ufeff")  # of each of files that were joined
                clean = line.encode(errors="surrogateescape").decode(errors="replace")
                if clean != line or (errors == "replace" and "\ufffd" in line):
                    tell(f"{path}:{number}: bytes that are no {encoding.upper()} were replaced")
                if clean.strip():
                    is_empty = False
                    yield number, clean
    except (OSError, EOFError, zlib.error) as error:
        tell(f"{path}: left out the rest: broken off ({short(error)})")
        return
    if is_empty:
        tell(f"{path}: nothing in it")


def _conversation(
    row: Any, name: str, place: str, tell: Tell, places: Sequence[str] | None = None
) -> Conversation | None:
    """Read one conversation, or the list of its messages, which may stand in several places; None, told, for none."""
    about = row if isinstance(row, Mapping) else {"messages": row}
    listed = about.get("messages")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        tell(f"{place}: no list of messages")
        return None
    read = list[tuple[int, Any]]()
    for number, said in enumerate(listed, 1):
        try:
            read += [(number, message) for message in read_message(said)]
        except Exception as error:  # noqa: BLE001  # readers of foreign data have no common error
            at = places[number - 1] if places else place
            tell(f"{at}: left out the conversation: message {number}: {short(error)}")
            return None
    system = about.get("system")  # where Anthropic's requests have it
    if system and isinstance(system, str | list) and not isinstance(read[0][1], SystemMessage):
        read.insert(0, (0, SystemMessage(system)))
    paired = _paired(read, place, tell)
    asked = next((index for index, message in enumerate(paired) if isinstance(message, HumanMessage)), len(paired))
    if not any(isinstance(message, AIMessage) for message in paired[asked:]):
        tell(f"{place}: no answer to a user in {len(paired):,} messages, so there is no request to replay")
        return None
    key, tools = about.get("id"), about.get("tools")
    tools = tools if isinstance(tools, list) else [] if tools is None else [tools]
    usable = tuple(one for one in tools if isinstance(one, Mapping))
    if len(usable) < len(tools):
        tell(f"{place}: left out {len(tools) - len(usable):,} tools that are no objects")
    called = str(key) if isinstance(key, str | int) and key != "" else name
    return Conversation(name=called, messages=tuple(paired), tools=usable)


def _paired(messages: Sequence[tuple[int, Any]], place: str, tell: Tell) -> list[Any]:
    """Leave out results that answer no call before them; tell of them, and of calls that were never answered."""
    kept, orphans, shared, waiting = list[Any](), list[int](), list[int](), dict[str, list[int]]()
    last = max((number for number, message in messages if not isinstance(message, ToolMessage)), default=0)
    for number, message in messages:
        if isinstance(message, ToolMessage):
            if not waiting.get(message.tool_call_id):
                orphans.append(number)
                continue
            waiting[message.tool_call_id].pop()
        keys = call_ids(message)
        if len(set(keys)) < len(keys):
            shared.append(number)
        for key in keys:
            waiting.setdefault(key, []).append(number)
        kept.append(message)
    open_calls = [number for numbers in waiting.values() for number in numbers if number != last]
    for numbers, fault in (  # no request could hold orphans
        (orphans, f"left out {len(orphans):,} results of calls that are not there before them"),
        (open_calls, f"{len(open_calls):,} calls without a result"),
        (shared, "calls of one message have the same id"),
    ):
        if numbers:
            listed = sorted({*numbers})
            more = ", ..." if len(listed) > MOST_NUMBERS else ""
            tell(f"{place}: {fault}: message {', '.join(map(str, listed[:MOST_NUMBERS]))}{more}")
    return kept


Run = Mapping[str, Any]
Keys = list[tuple[Any, ...]]

THREAD_KEYS = ("thread_id", "session_id", "conversation_id")  # by which LangSmith groups traces into threads
GIVEN, MADE = ("input", "question", "query", "prompt"), ("output", "answer", "response", "text")
"""Fields of chains whose input and output are texts."""

ASIDE = ("tool", "retriever", "embedding", "parser", "prompt")
"""Types of runs that are no part of a conversation by themselves."""


@dataclass(slots=True)
class _Trace:
    start: str
    messages: list[Any]
    keys: Keys
    tools: list[Any]


def _is_run(row: Any) -> bool:
    return isinstance(row, Mapping) and "run_type" in row and "inputs" in row


def _runs_in(row: Any) -> list[Any]:
    """The run that a row is, or the items of its list `runs`; empty for what is no export."""
    if _is_run(row):
        return [row]
    listed = row.get("runs") if isinstance(row, Mapping) else None
    return listed if isinstance(listed, list) and any(map(_is_run, listed)) else []


class Traces:
    """Joins runs to conversations, whatever the order in which runs come."""

    def __init__(self) -> None:
        self._threads: dict[str, dict[str, _Trace]] = {}
        self.unused = 0  # runs of agents and models that hold no messages, and what is no run; those of tools never do

    def take(self, run: Any) -> None:
        """Take up a run."""
        messages = _said(run) if _is_run(run) else []
        if not messages:
            self.unused += not (_is_run(run) and run["run_type"] in ASIDE)
            return
        extra = _mapping(run.get("extra"))
        metadata, invocation = _mapping(extra.get("metadata")), _mapping(extra.get("invocation_params"))
        thread = next((metadata[name] for name in THREAD_KEYS if metadata.get(name)), None)
        thread = str(thread or run.get("trace_id") or run.get("id") or "trace")
        tools = invocation.get("tools") or _mapping(run.get("inputs")).get("tools")
        tools = tools if isinstance(tools, list) else []
        traces, start = self._threads.setdefault(thread, {}), str(run.get("start_time") or "")
        name = str(run.get("trace_id") or run.get("id") or len(traces))
        new = _Trace(start, messages, list(map(_key, messages)), tools)
        trace = traces.setdefault(name, new)
        trace.start, trace.tools = min(trace.start, start), trace.tools or tools
        if len(new.messages) > len(trace.messages):
            trace.messages, trace.keys = new.messages, new.keys
        _drop_contained(traces, name)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one conversation per thread, as a line of a recording would hold it."""
        for thread, traces in self._threads.items():
            ordered = sorted(traces.values(), key=lambda trace: trace.start)
            messages, keys = list[Any](), Keys()
            for trace in ordered:
                first = _new_from(keys, trace.keys)
                messages += trace.messages[first:]
                keys += trace.keys[first:]
            tools = next((trace.tools for trace in reversed(ordered) if trace.tools), [])
            yield {"id": thread, "messages": messages, "tools": tools}


def _drop_contained(traces: dict[str, _Trace], changed: str) -> None:
    """Drop traces with which the changed one begins, or that one: of whole histories only the newest stay in memory."""
    new = traces[changed]
    for name, trace in list(traces.items()):
        shorter, longer = (name, changed) if len(trace.keys) <= len(new.keys) else (changed, name)
        size = len(traces[shorter].keys)
        if name != changed and traces[longer].keys[:size] == traces[shorter].keys:
            traces[longer].tools = traces[longer].tools or traces[shorter].tools
            del traces[shorter]
            if shorter == changed:
                return


def _new_from(known: Keys, keys: Keys) -> int:
    """Position of the first message that was not said before."""
    first = 0
    while first < min(len(known), len(keys)) and keys[first][0] == "system" and keys[first] in known:
        first += 1  # each trace repeats its system prompt
    most = min(len(known), len(keys) - first)
    return first + next((size for size in range(most, 0, -1) if known[-size:] == keys[first : first + size]), 0)


def _key(said: Any) -> tuple[Any, ...]:
    """What makes two messages the same one, in whatever forms they are recorded."""
    try:
        (message,) = read_message(said)
    except Exception:  # noqa: BLE001  # what is no message is told when the conversation is read
        return ("", str(said))
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return message.type, message.text, tuple(str(call["id"]) for call in calls), getattr(message, "tool_call_id", None)


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
