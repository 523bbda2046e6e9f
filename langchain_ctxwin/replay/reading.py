"""Recorded conversations out of files: OpenAI chat JSONL and LangChain messages in JSON, plain or gzipped.

    one conversation a line     {"id": ..., "messages": [...], "tools": [...]}   .jsonl, .jsonl.gz
    one message a line          {"role": "user", "content": ...}                 the same; the file is a conversation
    one conversation a file     [message, ...] or {"messages": [...]}            .json, .json.gz

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
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage, convert_to_messages, messages_from_dict

from langchain_ctxwin.errors import ConfigError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")

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
        paths: files, or folders, of which every file with a known suffix is read.
        tell: is told of each line that could not be read, `file:line: why`.

    Raises:
        ConfigError: a path is missing, or its suffix is unknown.

    Examples:
        ```python
        for conversation in read_conversations(["runs/"], tell=print):
            ...
        ```
    """
    for path in _files(paths):
        yield from _of_lines(path, tell) if ".jsonl" in path.name else _of_file(path, tell)


def _files(paths: Iterable[str | Path]) -> list[Path]:
    """The files, checked before any of them is read."""
    found = list[Path]()
    for place in map(Path, paths):
        if place.is_dir():
            inside = sorted(path for path in place.rglob("*") if path.is_file() and path.name.endswith(SUFFIXES))
            if not inside:
                raise ConfigError(f"{place} holds no file that ends in {', '.join(SUFFIXES)}")
            found += inside
        elif not place.is_file():
            raise ConfigError(f"{place} does not exist: give files or folders with recorded conversations")
        elif not place.name.endswith(SUFFIXES):
            raise ConfigError(f"{place}: recorded conversations end in {', '.join(SUFFIXES)}")
        else:
            found.append(place)
    return found


def _of_lines(path: Path, tell: Tell) -> Iterator[Conversation]:
    loose = list[Mapping[str, Any]]()
    for number, line in _lines(path, tell):
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            tell(f"{place}: no JSON ({_short(error)})")
            continue
        if isinstance(row, Mapping) and "messages" not in row and ("role" in row or "type" in row):
            loose.append(row)
        elif conversation := _conversation(row, f"{path.name}:{number}", place, tell):
            yield conversation
    if loose and (conversation := _conversation({"messages": loose}, path.name, str(path), tell)):
        yield conversation


def _of_file(path: Path, tell: Tell) -> Iterator[Conversation]:
    try:
        with _opened(path) as file:
            row = json.loads(file.read())
    except (ValueError, OSError, EOFError, RecursionError) as error:
        tell(f"{path}: no JSON ({_short(error)})")
        return
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
    if isinstance(first, Mapping) and "lc" in first:
        read: Sequence[Any] = [load_object(dict(one), allowed_objects="messages") for one in listed]
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
