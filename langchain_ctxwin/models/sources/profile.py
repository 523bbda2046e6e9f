"""LangChain's model profiles as a source, those of given models and of the installed integrations."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from langchain_ctxwin.core.limits import models_behind
from langchain_ctxwin.core.model_families import model_name
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.reading import capabilities_of, is_name, mapping, provider_id, stated, tokens

INTEGRATION = "langchain_"
COLLECTIONS = frozenset({"langchain_core", "langchain_community"})  # of many providers, named after none
TABLE_FILE = Path("data", "_profiles.py")
TABLE = "_PROFILES"

CAPABILITIES = {
    "images": "image_inputs",
    "audio": "audio_inputs",
    "video": "video_inputs",
    "pdf": "pdf_inputs",
    "structured_output": "structured_output",
    "reasoning": "reasoning_output",
    "temperature": "temperature",
}
"""Capability -> field of a profile."""


class ProfileSource:
    """Reads the profiles of the given chat models, then the tables of the integrations that are installed.

    The tables are private modules of the integrations, read as text and never imported; one that is missing or has
    moved is passed over. A profile's `max_input_tokens` is the window that the output shares, more often than not.

    Args:
        models: Chat models, or runnables around them; their own profiles come before the tables.
        installed: Whether to read the tables too.
    """

    name = "profile"
    tier = "profile"

    def __init__(self, models: Sequence[Any] = (), *, installed: bool = True) -> None:
        self._models = tuple(models)
        self._installed = installed
        self.cache_key = self.name

    def __repr__(self) -> str:
        return f"ProfileSource({len(self._models)} models, installed={self._installed})"

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return the profiles of one model or all of them."""
        found: dict[tuple[str | None, str], ModelInfo] = {}
        for info in (*self._given(), *(self._in_tables() if self._installed else ())):
            found.setdefault((info.provider, info.name), info)
        return [info for info in found.values() if name is None or info.name == name]

    def _given(self) -> Iterator[ModelInfo]:
        parts = (part for model in self._models for part, _ in models_behind(model))
        for part in parts:
            info = self._info(model_name(part), getattr(part, "profile", None), provider_of(part))
            if info is not None:
                yield info

    def _in_tables(self) -> Iterator[ModelInfo]:
        for package, path in _tables():
            provider = provider_id(package.removeprefix(INTEGRATION))
            for name, profile in _read_table(path).items():
                info = self._info(name, profile, provider)
                if info is not None:
                    yield info

    def _info(self, name: Any, profile: Any, provider: str | None) -> ModelInfo | None:
        if not isinstance(profile, Mapping) or not profile or not is_name(name):
            return None
        return stated(
            self.name,
            name.removeprefix("models/"),
            provider=provider,
            context_window=tokens(profile.get("max_input_tokens")),
            max_output_tokens=tokens(profile.get("max_output_tokens")),
            capabilities=capabilities_of(
                tools=profile.get("tool_calling"),
                **{capability: profile.get(field) for capability, field in CAPABILITIES.items()},
            ),
            deprecated=profile.get("status") == "deprecated",
        )


def provider_of(model: Any) -> str | None:
    """Return the provider that a chat model names for tracing, else the one its integration is named after."""
    try:
        named = model._get_ls_params().get("ls_provider")  # noqa: SLF001  # LangChain's own way to ask
    except Exception:  # noqa: BLE001  # other people's code; who serves a model then stays unknown
        named = None
    package = type(model).__module__.partition(".")[0]
    if not named and package.startswith(INTEGRATION) and package not in COLLECTIONS:
        named = package.removeprefix(INTEGRATION)
    return provider_id(named) if isinstance(named, str) and named else None


def _tables() -> Iterator[tuple[str, Path]]:
    """Integrations that are installed, with the place of their table; nothing is imported to find out."""
    names = (module.name for module in pkgutil.iter_modules() if module.ispkg and module.name.startswith(INTEGRATION))
    for name in sorted(set(names)):
        spec = importlib.util.find_spec(name)
        for folder in (spec and spec.submodule_search_locations) or ():
            path = Path(folder) / TABLE_FILE
            if path.is_file():
                yield name, path


def _read_table(path: Path) -> Mapping[str, Any]:
    """The dictionary that the module assigns, when it is one of plain values."""
    try:
        module = ast.parse(path.read_bytes())
        assigned = [node.value for node in module.body if _assigns_table(node)]
        return mapping(ast.literal_eval(assigned[0] or "{}")) if assigned else {}
    except (OSError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return {}


def _assigns_table(node: ast.stmt) -> TypeGuard[ast.Assign | ast.AnnAssign]:
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [getattr(target, "id", "") for target in targets] == [TABLE]
