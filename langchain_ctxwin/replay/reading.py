"""Recorded conversations out of files and databases: OpenAI chat, LangChain messages, LangGraph's checkpoints.

    one conversation a line     {"id": ..., "messages": [...], "tools": [...]}   .jsonl, .jsonl.gz
    one message a line          {"role": "user", "content": ...}                 the same; the file is a conversation
    one conversation a file     [message, ...] or {"messages": [...]}            .json, .json.gz; also a list of them
    LangGraph's checkpoints     a SQLite file, postgresql://...                  a conversation per thread

What cannot be read is reported with file and line, and left out; nothing else is: each conversation fails alone.
Nothing is written.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.load.load import load as load_object
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    convert_to_messages,
    message_chunk_to_message,
    messages_from_dict,
)
from langchain_core.messages.tool import tool_call
from langchain_core.output_parsers.openai_tools import (
    make_invalid_tool_call,
    parse_tool_call,
)
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from pydantic import ValidationError

from langchain_ctxwin.agent.state import ContextState
from langchain_ctxwin.errors import ConfigError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
ROLES = {"human", "user", "ai", "assistant", "system", "developer", "tool", "function"}
# what is said in the APIs of OpenAI (Responses) and Anthropic
UNREAD_BLOCKS = {"input_text", "output_text", "tool_result"}

SQLITE_MAGIC = b"SQLite format 3\0"  # the first bytes of every SQLite database (sqlite.org/fileformat)
LOCK_SECONDS = (
    5.0  # how long to wait for somebody who writes; savers write for milliseconds
)
SCHEMES = ("postgresql://", "postgres://")

Opened = tuple[Callable[[Any], BaseCheckpointSaver[str]], type[Exception]]
"""Makes a saver with a serializer, and the error of the whole database."""

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
        paths: files, folders, of which every file that is known is read, or addresses of Postgres servers; also one
            alone.
        tell: is called with what could not be read, `file:line: why`.

    Raises:
        ConfigError: a path is missing or of an unknown kind, or cannot be read; in a folder that is reported instead.

    Examples:
        ```python
        for conversation in read_conversations(["runs/"], tell=print):
            ...
        ```
    """
    several = [paths] if isinstance(paths, str | Path) else paths
    taken = set[str]()
    for place, is_named in [source for path in several for source in _places(path)]:
        try:
            is_stored = is_address(place) or is_database(place)
            for conversation in (_of_database if is_stored else _of_file)(place, tell):
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
            if is_named:
                raise
            tell(str(error))


def _places(source: str | Path) -> list[tuple[Any, bool]]:
    """The files and addresses that a path means, and whether they were named themselves."""
    place, suffixes = Path(source), ", ".join(SUFFIXES)
    if is_address(source):
        return [(str(source), True)]
    if place.is_dir():
        read = [
            (path, False) for path in sorted(place.rglob("*")) if _is_readable(path)
        ]
        if not read:
            raise ConfigError(
                f"{place} holds no SQLite database, and no file that ends in {suffixes}"
            )
        return read
    if not place.exists():
        raise ConfigError(
            f"{place} does not exist: give files or folders with recorded conversations"
        )
    if not _is_readable(place):
        raise ConfigError(
            f"{place}: recorded conversations are SQLite databases, or end in {suffixes}"
        )
    return [(place, True)]


def _is_readable(path: Path) -> bool:
    return path.is_file() and (
        path.name.lower().endswith(SUFFIXES) or is_database(path)
    )


def _of_database(place: str | Path, tell: Tell) -> Iterator[Conversation]:
    address = shown_address(place)
    threads = 0
    for thread, state in thread_states(place, tell=tell):
        threads += 1
        yield from _conversations(
            {"id": thread, "messages": state["messages"]},
            thread,
            f"{address}: thread {thread}",
            tell,
        )
    if not threads:
        tell(f"{address}: no thread that can be read")


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
            if ".jsonl" in path.name.lower():
                for number, line in enumerate(file, 1):
                    place = f"{path}:{number}"
                    for row in _parsed(line, place, tell):
                        yield place, f"{path.name}:{number}", row
                return
            for row in _parsed(file.read(), str(path), tell):
                if not (isinstance(row, list) and any(map(_is_whole, row))):
                    yield str(path), path.name, row
                    continue
                for number, item in enumerate(row, 1):
                    yield f"{path}: item {number}", f"{path.name}:{number}", item
    except (OSError, EOFError, zlib.error) as error:
        tell(f"{path}: left out the rest: broken off ({short(error)})")


def _parsed(text: str, place: str, tell: Tell) -> Iterator[Any]:
    if text.strip():
        try:
            yield json.loads(text, strict=False)
        except (ValueError, RecursionError) as error:
            tell(f"{place}: no JSON ({short(error)})")


def _is_whole(item: Any) -> bool:
    """True for a conversation, where a message could stand too."""
    return isinstance(item, list) or (isinstance(item, Mapping) and "messages" in item)


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
    system = about.get("system")  # where Anthropic's requests have it
    if system and not isinstance(messages[0], SystemMessage):
        messages.insert(0, SystemMessage(system))
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


# ---- messages --------------------------------------------------------------------------------------------------


def _read_message(said: Any) -> BaseMessage:
    """Return one recorded message.

    Tool calls whose arguments are no JSON object become `invalid_tool_calls`, as LangChain's own parsers make them.
    What is no message, or says nothing that is understood, raises whatever its reader raises.
    """
    message: Any
    if isinstance(said, BaseMessage):
        message = said
    elif not isinstance(said, Mapping):
        raise ConfigError(f"a message is {type(said).__name__}, not an object")
    elif "lc" in said:
        message = load_object(dict(said), allowed_objects="messages")
    elif isinstance(said.get("data"), Mapping):
        (message,) = messages_from_dict([dict(said)])
    else:
        message = _of_role(said)
    if not isinstance(message, BaseMessage) or isinstance(message, RemoveMessage):
        raise ConfigError(f"{type(message).__name__} is no message of a conversation")
    is_chunk = isinstance(message, BaseMessageChunk)
    return message_chunk_to_message(message) if is_chunk else message


def _of_role(said: Mapping[str, Any]) -> BaseMessage:
    """The message of an object with `role` or `type`, whose other fields stand beside it."""
    role = str(said.get("role") or said.get("type"))
    # LangChain's types of streamed messages, `AIMessageChunk`
    if role.endswith("MessageChunk"):
        role = role.removesuffix("MessageChunk").lower()
    if role not in ROLES:
        raise ConfigError(f"unknown role {role!r}")
    # ids are given anew, null is what a message does not say
    fields = {
        key: value
        for key, value in said.items()
        if value is not None and key not in {"id", "role", "type"}
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
    fields["content"] = content
    return _answer(fields) if is_answer else _converted(fields, role)


def _converted(fields: Mapping[str, Any], role: str) -> BaseMessage:
    return convert_to_messages([{**fields, "role": role}])[0]


def _answer(fields: dict[str, Any]) -> AIMessage:
    """An answer with its calls in OpenAI's or LangChain's form, valid or not."""
    calls, invalid = [], list(fields.pop("invalid_tool_calls", ()))
    for raw in fields.pop("tool_calls", None) or ():
        try:
            calls.append(_call(raw))
        except (OutputParserException, ValidationError) as error:
            invalid.append(make_invalid_tool_call(raw, str(error)))
    return AIMessage(
        **{
            **_converted(fields, "assistant").model_dump(),
            "tool_calls": calls,
            "invalid_tool_calls": invalid,
        }
    )


def _call(raw: Any) -> Any:
    if "function" in raw:
        call = parse_tool_call(raw, return_id=True)
        if call is None or not isinstance(call["args"], dict):
            raise OutputParserException("its arguments are no JSON object")
        return call
    return tool_call(name=raw["name"], args=raw.get("args") or {}, id=raw.get("id"))


def short(error: BaseException) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200]


# ---- checkpoints -----------------------------------------------------------------------------------------------


def is_address(text: str | Path) -> bool:
    """True for the address of a server, also of one that is none of Postgres."""
    return "://" in str(text)


def shown_address(place: str | Path) -> str:
    """Return a place for people: where a badly written address ends its password, nobody can tell."""
    return (
        f"{str(place).partition('://')[0]}://***" if is_address(place) else str(place)
    )


def is_database(place: str | Path) -> bool:
    """True for the address of a server and for a SQLite file, whatever it is called."""
    if is_address(place) or not Path(place).is_file():
        return is_address(place)
    try:
        with Path(place).open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:  # its reader says why
        return False


def thread_states(
    place: str | Path, *, tell: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each thread of a checkpointer with its newest state, the oldest thread first.

    A thread that cannot be read is reported, and left out.
    """
    name, opened = shown_address(place), _postgres if is_address(place) else _sqlite
    with opened(str(place)) as (saver_with, unreadable):
        graph = StateGraph(ContextState).add_node("none", lambda _: {})
        # It makes no classes but LangChain's and LangGraph's own values.
        strict = JsonPlusSerializer(allowed_msgpack_modules=None)
        compiled = graph.add_edge(START, "none").compile(saver_with(strict))
        for thread in _threads(name, saver_with(_Unread()), unreadable):
            try:
                state = dict(
                    compiled.get_state({"configurable": {"thread_id": thread}}).values
                )
                state["messages"] = convert_to_messages(state.get("messages") or ())
            except unreadable:
                raise
            except Exception as error:  # noqa: BLE001  # what a thread holds may be of any program
                tell(f"{name}: left out thread {thread}: {short(error)}")
            else:
                yield thread, state


class _Unread:
    """Reads nothing of what is stored: to list threads, their names are enough."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:  # noqa: ARG002  # the name is part of the protocol
        raise TypeError("a serializer that lists threads writes nothing")

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ARG002
        return {}


def _threads(
    place: str, saver: BaseCheckpointSaver[str], unreadable: type[Exception]
) -> list[str]:
    """The threads of the root graph; savers list the newest checkpoint first."""
    newest_checkpoints = dict[str, str]()
    try:
        for one in saver.list(None):
            about = one.config["configurable"]
            if not about.get("checkpoint_ns"):
                newest_checkpoints[about["thread_id"]] = about["checkpoint_id"]
    except unreadable:
        raise
    except Exception as error:
        raise ConfigError(
            f"{place}: its threads cannot be listed ({short(error)}): mend or delete that row"
        ) from error
    return sorted(newest_checkpoints, key=lambda thread: newest_checkpoints[thread])


@contextmanager
def _sqlite(path: str) -> Iterator[Opened]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415  # optional packages, only for this
    except ImportError as error:
        raise ConfigError(
            f"{path} is a SQLite database: pip install langgraph-checkpoint-sqlite"
        ) from error

    def saver_with(serde: Any) -> BaseCheckpointSaver[str]:
        saver = SqliteSaver(connection, serde=serde)
        saver.is_setup = True  # else it would make its tables
        return saver

    try:
        address = f"{Path(path).resolve().as_uri()}?mode=ro"
        with closing(
            sqlite3.connect(
                address, uri=True, timeout=LOCK_SECONDS, check_same_thread=False
            )
        ) as connection:
            yield saver_with, sqlite3.Error
    except sqlite3.Error as error:
        raise ConfigError(
            f"{path} cannot be read as a database of LangGraph's SQLite saver: {error}"
        ) from error


@contextmanager
def _postgres(address: str) -> Iterator[Opened]:
    place = shown_address(address)
    if not address.startswith(SCHEMES):
        raise ConfigError(
            f"{place}: the address of a server begins with {' or '.join(SCHEMES)}"
        )
    try:
        import psycopg  # noqa: PLC0415  # optional packages, only for this
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
        from psycopg.rows import dict_row  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"{place} is a Postgres server: pip install langgraph-checkpoint-postgres"
        ) from error
    options: Any = {
        "options": "-c default_transaction_read_only=on",
        "autocommit": True,
        "row_factory": dict_row,
    }
    try:
        with psycopg.connect(address, prepare_threshold=0, **options) as connection:
            yield lambda serde: PostgresSaver(connection, serde=serde), psycopg.Error
    except psycopg.Error as error:  # whose text may quote parts of a password
        raise ConfigError(
            f"{place} cannot be read ({type(error).__name__}): check that the server runs, has LangGraph's tables, and "
            "that @ / : ? in a password are written %40 %2F %3A %3F"
        ) from None
