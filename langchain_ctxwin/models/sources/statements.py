"""How are limits that were heard merged, and kept in a file that several processes share?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

from langchain_ctxwin.models.values import MAX_TOKENS
from langchain_ctxwin.util.files import replace_text

LIMIT_FIELDS = ("context_window", "max_input_tokens")

FILE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One limit as it was heard."""

    tokens: int
    heard_at: float
    """Seconds since the epoch."""

    is_withdrawn: bool = False
    """True once an accepted request refuted the limit: it counts no more, and stays to overrule older files."""


Heard = Mapping[str, Mapping[str, Statement]]
"""Model name -> limit field -> the newest statement about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a file holds, and what is wrong with it."""

    heard: Heard = field(default_factory=dict)
    fault: str = ""


def merged(one: Heard, other: Heard) -> dict[str, dict[str, Statement]]:
    """Return the newest statement per model and field; of two that were heard in the same instant, the stricter."""
    both: dict[str, dict[str, Statement]] = {}
    for model, known in chain(one.items(), other.items()):
        newest = both.setdefault(model, {})
        for name, heard in known.items():
            newest[name] = max(heard, newest.get(name, heard), key=_precedence)
    return both


def _precedence(said: Statement) -> tuple[float, bool, int]:
    return said.heard_at, not said.is_withdrawn, -said.tokens


def is_plausible(tokens: object) -> TypeGuard[int]:
    """Say whether this is a number of tokens that a provider may state as a limit."""
    return isinstance(tokens, int) and not isinstance(tokens, bool) and 1 <= tokens <= MAX_TOKENS


def read_file(path: Path) -> Stored:
    """Return what the file holds: nothing when it is missing, what is valid in it when it has a fault.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Stored()
    except (ValueError, RecursionError) as error:
        return Stored(fault=f"not JSON: {error}")
    known_version = isinstance(document, dict) and document.get("version") == FILE_VERSION
    models = document.get("models") if known_version else None
    if not isinstance(models, dict):
        return Stored(fault=f"not learned limits of version {FILE_VERSION}")
    return _valid_entries(models)


def replace_file(path: Path, heard: Heard) -> None:
    """Write all statements; a reader sees the old file or the new one, never a part.

    Raises:
        OSError: the file is as it was.
    """
    models = {model: {name: _entry(said) for name, said in known.items()} for model, known in heard.items()}
    text = json.dumps({"version": FILE_VERSION, "models": models}, indent=1, sort_keys=True)
    replace_text(path, text)


def _entry(said: Statement) -> dict[str, Any]:
    """The statement as JSON; only a withdrawn one says so."""
    return {name: value for name, value in asdict(said).items() if value is not False}


def _valid_entries(models: dict[str, Any]) -> Stored:
    heard: dict[str, dict[str, Statement]] = {}
    invalid: list[str] = []
    for model, known in models.items():
        for name, value in known.items() if isinstance(known, dict) else [("", known)]:
            said = _statement(value)
            if said is None or not model or name not in LIMIT_FIELDS:
                invalid.append(f"{model}.{name}")
            else:
                heard.setdefault(model, {})[name] = said
    fault = f"{len(invalid)} invalid entries, the first is {invalid[0]!r}" if invalid else ""
    return Stored(heard=heard, fault=fault)


def _statement(value: object) -> Statement | None:
    if not isinstance(value, dict):
        return None
    tokens, heard_at, is_withdrawn = value.get("tokens"), value.get("heard_at"), value.get("is_withdrawn", False)
    if not is_plausible(tokens) or not isinstance(heard_at, int | float) or not isinstance(is_withdrawn, bool):
        return None
    return Statement(tokens=tokens, heard_at=heard_at, is_withdrawn=is_withdrawn)
