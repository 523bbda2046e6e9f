"""Recorded conversations out of files: OpenAI chat, LangChain messages, LangGraph's checkpoints in SQLite.

    one conversation a line     {"id": ..., "messages": [...], "tools": [...]}   .jsonl, .jsonl.gz
    one message a line          {"role": "user", "content": ...}                 the same; the file is a conversation
    one conversation a file     [message, ...] or {"messages": [...]}            .json, .json.gz
    LangGraph's checkpoints     a SQLite file, whatever it is called             a conversation per thread

What cannot be read is reported with file and line, and left out; nothing else is: each conversation fails alone.
Nothing is written.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    convert_to_messages,
)
from langchain_core.messages.tool import default_tool_parser
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from pydantic import ValidationError

from langchain_ctxwin.agent.state import ContextState
from langchain_ctxwin.errors import ConfigError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
KINDS = f"recorded conversations are SQLite databases, or end in {', '.join(SUFFIXES)}"
ROLES = {"human", "user", "ai", "assistant", "system", "developer", "tool", "function"}
# what is said in the APIs of OpenAI (Responses) and Anthropic
UNREAD_BLOCKS = {"input_text", "output_text", "tool_result"}

SQLITE_MAGIC = b"SQLite format 3\0"  # the first bytes of every SQLite database (sqlite.org/fileformat)

Tell = Callable[[str], None]
"""Is called with each conversation, or part of a file, that was left out, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One recorded conversation."""

    name: str
    messages: tuple[AnyMessage, ...]
    tools: tuple[Any, ...] = ()
    """The definitions that its requests carried, where the recording has them."""

    place: str = ""
    """Where it was read, such as `file:line`."""

    @property
    def begins(self) -> int:
        """Number of its leading system messages; what follows them is its history."""
        messages = self.messages
        return next(
            (i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)),
            len(messages),
        )


def read_conversations(
    paths: Iterable[str | Path] | str | Path, *, tell: Tell = lambda _: None
) -> Iterator[Conversation]:
    """Yield the conversations in files and folders, in order; of those with one name, all but the first are numbered.

    Args:
        paths: files, or folders, of which every file that is known is read; also one alone.
        tell: is called with what could not be read, `file:line: why`.

    Raises:
        ConfigError: a path is missing or of an unknown kind.

    Examples:
        ```python
        for conversation in read_conversations(["runs/"], tell=print):
            ...
        ```
    """
    several = [paths] if isinstance(paths, str | Path) else paths
    taken = set[str]()
    for file in [found for path in several for found in _files(Path(path))]:
        try:
            read = _of_database if is_database(file) else _of_file
            for conversation in read(file, tell):
                name, number = conversation.name, 1
                while name in taken:
                    number += 1
                    name = f"{conversation.name} ({number})"
                taken.add(name)
                messages = [
                    one.model_copy(update={"id": f"{name}-{i}"})
                    for i, one in enumerate(conversation.messages)
                ]
                yield replace(conversation, name=name, messages=tuple(messages))
        except ConfigError as error:
            tell(str(error))


def _files(path: Path) -> list[Path]:
    """The files that a path means."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    readable = list(filter(_is_readable, files))
    if not readable:
        holds = "holds none" if path.exists() else "does not exist"
        raise ConfigError(f"{path} {holds}: {KINDS}")
    return readable


def _is_readable(path: Path) -> bool:
    return path.is_file() and (
        path.name.lower().endswith(SUFFIXES) or is_database(path)
    )


def is_database(path: Path) -> bool:
    """True for a SQLite file, whatever it is called."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def _of_file(path: Path, tell: Tell) -> Iterator[Conversation]:
    """The conversations of a file; messages in lines of their own are one."""
    messages, places = list[Any](), list[str]()
    for place, name, row in _rows(path, tell):
        if _is_message(row):
            messages.append(row)
            places.append(place)
        else:
            yield from _conversations(row, name, place, tell)
    if messages:
        yield from _conversations(messages, path.name, str(path), tell, places)


def _is_message(row: Any) -> bool:
    return (
        isinstance(row, Mapping)
        and "messages" not in row
        and ("role" in row or row.get("type") in ROLES)
    )


def _rows(path: Path, tell: Tell) -> Iterator[tuple[str, str, Any]]:
    """The JSON values of a file, one a line or one in all, with their place and a name."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", errors="replace") as file:
            is_lines = ".jsonl" in path.name.lower()
            texts = enumerate(file, 1) if is_lines else [(0, file.read())]
            for number, text in texts:
                at = f":{number}" if is_lines else ""
                if not text.strip():
                    continue
                try:
                    yield f"{path}{at}", path.name + at, json.loads(text, strict=False)
                except (ValueError, RecursionError) as error:
                    tell(f"{path}{at}: no JSON ({short(error)})")
    except (OSError, EOFError, zlib.error) as error:
        tell(f"{path}: left out the rest: broken off ({short(error)})")


def _conversations(
    row: Any, name: str, place: str, tell: Tell, places: Sequence[str] = ()
) -> Iterator[Conversation]:
    """The conversation in a row, or none: readers of foreign data have no common error."""
    try:
        conversation = _conversation(row, name, place, places)
    except Exception as error:  # noqa: BLE001
        tell(f"{place}: left out the conversation: {short(error)}")
    else:
        yield conversation


def _conversation(
    row: Any, name: str, place: str, places: Sequence[str]
) -> Conversation:
    """Read one conversation, or the list of its messages, which may stand in several places; an error for none."""
    about = row if isinstance(row, Mapping) else {"messages": row}
    listed = about.get("messages")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ConfigError("no list of messages")
    messages = list[Any]()
    for number, said in enumerate(listed, 1):
        try:
            messages.append(_read_message(said))
        except Exception as error:
            at = f" ({places[number - 1]})" if places else ""
            raise ConfigError(f"message {number}{at}: {short(error)}") from error
    kinds = [type(message) for message in messages]
    if HumanMessage not in kinds or AIMessage not in kinds[kinds.index(HumanMessage) :]:
        raise ConfigError(
            f"no answer to a user in {len(messages):,} messages, so there is no request to replay"
        )
    key = about.get("id")
    tools = about.get("tools")
    return Conversation(
        name=name if key is None or key == "" else str(key),
        messages=tuple(messages),
        tools=tuple(tools) if isinstance(tools, list) else (),
        place=place,
    )


def _read_message(said: Any) -> BaseMessage:
    """Return one recorded message.

    Tool calls whose arguments are no JSON become `invalid_tool_calls`, as LangChain's own parsers make them. What is no
    message, or says nothing that is understood, raises whatever its reader raises.
    """
    if isinstance(said, BaseMessage):
        return said
    if not isinstance(said, Mapping):
        raise ConfigError(f"a message is {type(said).__name__}, not an object")
    # where LangChain's two forms of serialization have the fields
    inner = said.get("kwargs", said.get("data"))
    if isinstance(inner, Mapping):
        said = {"type": said.get("type"), **inner}
    role = str(said.get("role") or said.get("type"))
    if role not in ROLES:
        raise ConfigError(f"unknown role {role!r}")
    # ids are given anew, requests are counted anew, null is what a message does not say
    left_out = {"id", "role", "type", "usage_metadata"}
    fields = {
        key: value
        for key, value in said.items()
        if value is not None and key not in left_out
    }
    content = fields.pop("content", None) or fields.pop("text", None) or ""
    if not isinstance(content, str | list):
        raise ConfigError(
            f"its content is {type(content).__name__}, neither text nor a list"
        )
    is_answer = role in {"ai", "assistant"}
    is_silent = not content and not is_answer and "tool_call_id" not in fields
    kinds = {str(block.get("type")) for block in content if isinstance(block, Mapping)}
    if is_silent or fields.get("parts") or kinds & UNREAD_BLOCKS:
        has = ", ".join(sorted({*fields, *kinds})) or "no content"
        raise ConfigError(f"it says nothing that is understood: it has {has}")
    calls = fields.pop("tool_calls", None) or []
    invalid = fields.pop("invalid_tool_calls", [])
    if any("function" in call for call in calls):  # OpenAI's form
        calls, invalid = default_tool_parser(calls)
    about = {"tool_calls": calls} if calls else {}
    message = convert_to_messages(
        [{**fields, **about, "role": role, "content": content}]
    )[0]
    if isinstance(message, AIMessage):
        message.invalid_tool_calls = invalid
    return message


def short(error: BaseException) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200]


# ---- checkpoints -----------------------------------------------------------------------------------------------


def _of_database(path: Path, tell: Tell) -> Iterator[Conversation]:
    """The threads of a SQLite checkpointer as their newest state has them, the oldest thread first."""
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415  # optional package, only for this
    except ImportError as error:
        raise ConfigError(
            f"{path} is a SQLite database: pip install langgraph-checkpoint-sqlite"
        ) from error
    graph = StateGraph(ContextState).add_node("none", lambda _: {})
    address = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with closing(
            sqlite3.connect(address, uri=True, check_same_thread=False)
        ) as connection:
            # It makes no classes but LangChain's and LangGraph's own values.
            strict = JsonPlusSerializer(allowed_msgpack_modules=None)
            saver = SqliteSaver(connection, serde=strict)
            names: Any = SqliteSaver(connection, serde=_Unread())
            saver.is_setup = names.is_setup = True  # else they would make tables
            compiled = graph.add_edge(START, "none").compile(saver)
            abouts = [one.config["configurable"] for one in names.list(None)]
            # the newest checkpoint stands first
            threads = {
                about["thread_id"]: None
                for about in abouts
                if not about.get("checkpoint_ns")
            }
            for thread in reversed(threads):
                config: Any = {"configurable": {"thread_id": thread}}
                place = f"{path}: thread {thread}"
                try:
                    said = compiled.get_state(config).values.get("messages")
                    row = {"id": thread, "messages": convert_to_messages(said or ())}
                except sqlite3.Error:
                    raise
                except Exception as error:  # noqa: BLE001  # what a thread holds may be of any program
                    tell(f"{place}: left out the conversation: {short(error)}")
                else:
                    yield from _conversations(row, thread, place, tell)
    except (sqlite3.Error, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read as a database of LangGraph's SQLite saver: {error}"
        ) from error


class _Unread:
    """Reads nothing of what is stored: to list threads, their names are enough."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:  # noqa: ARG002  # the name is part of the protocol
        raise TypeError("a serializer that lists threads writes nothing")

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ARG002
        return {}
