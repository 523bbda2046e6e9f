"""Recorded conversations out of files and databases: OpenAI chat, LangChain messages, LangSmith runs, checkpoints.

    one conversation a line     {"id": ..., "messages": [...], "tools": [...]}   .jsonl, .jsonl.gz
    one message a line          {"role": "user", "content": ...}                 the same; the file is a conversation
    one run a line              {"run_type": ..., "inputs": ..., "outputs": ...} the same; a conversation per thread
    one conversation a file     [message, ...] or {"messages": [...]}            .json, .json.gz; also a list of runs
    LangGraph's checkpoints     a SQLite file, postgresql://...                  a conversation per thread

Files are read line by line. What cannot be read is told with file and line, and left out; nothing else is.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from langchain_core.load import load as load_object
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    ToolMessage,
    convert_to_messages,
    messages_from_dict,
)

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.replay.threads import POSTGRES, is_database, thread_states
from langchain_ctxwin.replay.traces import Traces, is_run

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")

SIDE_FILES = ("-wal", "-shm", "-journal")
"""What stands beside a SQLite database that is in use."""

REPLACED = "\ufffd"
"""What stands in the place of a byte that is no UTF-8."""

MAX_LINE_CHARS = 200_000_000
"""A longer line is no conversation: that of a million-token agent has some five million characters."""

Tell = Callable[[str], None]
"""Is told what was left out, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One recorded conversation."""

    name: str
    messages: tuple[AnyMessage, ...]
    tools: tuple[Any, ...] = ()
    """The definitions that its requests carried, where the recording has them."""


def read_conversations(paths: Iterable[str | Path], *, tell: Tell = lambda _: None) -> Iterator[Conversation]:
    """Yield the conversations in files and folders, in order.

    Args:
        paths: files, folders, of which every file that is known is read, or addresses of Postgres servers.
        tell: is told of each line that could not be read, `file:line: why`.

    Raises:
        ConfigError: a path is missing or of an unknown kind, or a database cannot be read.

    Examples:
        ```python
        for conversation in read_conversations(["runs/"], tell=print):
            ...
        ```
    """
    for place in _places(paths, tell):
        if isinstance(place, str) or is_database(place):
            yield from _of_database(place, tell)
        else:
            yield from _of_lines(place, tell) if ".jsonl" in place.name else _of_file(place, tell)


def _places(paths: Iterable[str | Path], tell: Tell) -> list[str | Path]:
    """The files and addresses, checked before any of them is read."""
    found = list[str | Path]()
    for given in paths:
        place = Path(given)
        if str(given).startswith(POSTGRES):
            found.append(str(given))
        elif place.is_dir():
            files = sorted(path for path in place.rglob("*") if path.is_file())
            inside = [path for path in files if _is_known(path)]
            if not inside:
                raise ConfigError(f"{place} holds no SQLite database, and no file that ends in {', '.join(SUFFIXES)}")
            if others := [path for path in files if not _is_known(path) and not path.name.endswith(SIDE_FILES)]:
                tell(f"{place}: {len(others):,} files of other kinds, such as {others[0].name}")
            found += inside
        elif not place.is_file():
            raise ConfigError(f"{place} does not exist: give files or folders with recorded conversations")
        elif not _is_known(place):
            raise ConfigError(f"{place}: recorded conversations are SQLite databases, or end in {', '.join(SUFFIXES)}")
        else:
            found.append(place)
    return found


def _is_known(path: Path) -> bool:
    return path.name.endswith(SUFFIXES) or is_database(path)


def _of_database(place: str | Path, tell: Tell) -> Iterator[Conversation]:
    for thread, state in thread_states(place):
        if "archived" in state:
            tell(f"{thread}: {state['archived']:,} older messages were archived to a store that is not here")
        if conversation := _conversation({"id": thread, "messages": state["messages"]}, thread, thread, tell):
            yield conversation


def _of_lines(path: Path, tell: Tell) -> Iterator[Conversation]:
    loose, traces = list[Mapping[str, Any]](), Traces()
    for number, line in _lines(path, tell):
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            tell(f"{place}: no JSON ({_short(error)})")
            continue
        if is_run(row):
            traces.take(row)
        elif isinstance(row, Mapping) and "messages" not in row and ("role" in row or "type" in row):
            loose.append(row)
        elif conversation := _conversation(row, f"{path.name}:{number}", place, tell):
            yield conversation
    rows = [*traces.rows(), *([{"messages": loose}] if loose else [])]
    for row in rows:
        if conversation := _conversation(row, path.name, str(path), tell):
            yield conversation


def _of_file(path: Path, tell: Tell) -> Iterator[Conversation]:
    try:
        with _opened(path) as file:
            row = json.loads(file.read())
    except (ValueError, OSError, EOFError, RecursionError) as error:
        tell(f"{path}: no JSON ({_short(error)})")
        return
    if isinstance(row, list) and any(map(is_run, row)):
        traces = Traces()
        for one in filter(is_run, row):
            traces.take(one)
        row = [*traces.rows()]
    several = isinstance(row, list) and bool(row) and all(isinstance(one, Mapping) and "messages" in one for one in row)
    for number, one in enumerate(row) if several else [(None, row)]:
        name = path.name if number is None else f"{path.name}:{number}"
        if conversation := _conversation(one, name, str(path), tell):
            yield conversation


def _lines(path: Path, tell: Tell) -> Iterator[tuple[int, str]]:
    """The lines that hold something, with their numbers; a file that breaks off ends there."""
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, 1):
                if len(line) > MAX_LINE_CHARS:
                    tell(f"{path}:{number}: {len(line):,} characters are no conversation")
                elif line.strip():
                    if REPLACED in line:
                        tell(f"{path}:{number}: bytes that are no UTF-8 were replaced")
                    yield number, line
    except (OSError, EOFError) as error:
        tell(f"{path}: broken off ({_short(error)})")


def _opened(path: Path) -> IO[str]:
    """Open a file as text; bytes that are no UTF-8 become the replacement character."""
    opener: Any = gzip.open if path.name.endswith(".gz") else open
    opened: IO[str] = opener(path, "rt", encoding="utf-8-sig", errors="replace")
    return opened


def _conversation(row: Any, name: str, place: str, tell: Tell) -> Conversation | None:
    """Read one conversation; None, told, for what is none."""
    about = row if isinstance(row, Mapping) else {"messages": row}
    listed = about.get("messages")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        tell(f"{place}: no list of messages")
        return None
    try:
        messages = _messages(listed)
    except Exception as error:  # noqa: BLE001  # readers of foreign data have no common error
        tell(f"{place}: {_short(error)}")
        return None
    calls = {call["id"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls}
    orphans = [one for one in messages if isinstance(one, ToolMessage) and one.tool_call_id not in calls]
    if orphans:  # no request could hold them
        tell(f"{place}: left out {len(orphans):,} results of calls that are not there")
        messages = [message for message in messages if message not in orphans]
    if not any(isinstance(message, AIMessage) for message in messages):
        tell(f"{place}: no answer in {len(messages):,} messages, so there is no request to replay")
        return None
    called = str(about.get("id") or name)
    named = [message.model_copy(update={"id": f"{called}-{index}"}) for index, message in enumerate(messages)]
    tools = about.get("tools")
    return Conversation(name=called, messages=tuple(named), tools=tuple(tools) if isinstance(tools, list) else ())


def _messages(listed: Sequence[Any]) -> list[Any]:
    """Read messages in OpenAI's or LangChain's form."""
    first = listed[0]
    if isinstance(first, BaseMessage):
        read: Sequence[Any] = listed
    elif isinstance(first, Mapping) and "lc" in first:
        read = [load_object(dict(one), allowed_objects="messages") for one in listed]
    elif isinstance(first, Mapping) and isinstance(first.get("data"), Mapping):
        read = messages_from_dict([dict(one) for one in listed])
    else:
        read = convert_to_messages([_cleaned(one) for one in listed])
    return list(read)


def _cleaned(message: Any) -> Any:
    """Recordings have null where a message says nothing beside its calls."""
    if not isinstance(message, Mapping):
        raise ConfigError(f"a message is {type(message).__name__}, not an object")
    return {key: "" if key == "content" and value is None else value for key, value in message.items()}


def _short(error: BaseException) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200]
