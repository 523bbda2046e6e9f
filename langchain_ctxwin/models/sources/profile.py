"""LangChain's model profiles as a source, those of given models and of the installed integrations."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_ctxwin.core.limits import models_behind
from langchain_ctxwin.core.model_families import model_name
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.reading import capabilities_of, is_name, mapping, provider_id, stated, tokens

INTEGRATION = "langchain_"
COLLECTIONS = frozenset({"langchain_core", "langchain_community"})  # of many providers, named after none

CAPABILITIES = {  # capability -> field of a profile
    "images": "image_inputs",
    "audio": "audio_inputs",
    "video": "video_inputs",
    "pdf": "pdf_inputs",
    "structured_output": "structured_output",
    "reasoning": "reasoning_output",
    "temperature": "temperature",
}


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
    cache_key = "profile"

    def __init__(self, models: Sequence[Any] = (), *, installed: bool = True) -> None:
        self._models = tuple(models)
        self._installed = installed

    def __repr__(self) -> str:
        return f"ProfileSource({len(self._models)} models, installed={self._installed})"

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return the profiles of one model or all of them."""
        parts = (part for model in self._models for part, _ in models_behind(model))
        profiles = [(model_name(part), getattr(part, "profile", None), provider_of(part)) for part in parts]
        profiles += _installed_profiles() if self._installed else ()
        found: dict[tuple[str | None, str], ModelInfo] = {}
        for info in (self._info(*profile) for profile in profiles):
            if info is not None:
                found.setdefault((info.provider, info.name), info)
        return [info for info in found.values() if name is None or info.name == name]

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


def _installed_profiles() -> Iterator[tuple[Any, Any, str]]:
    """Names, profiles and providers in the tables of the integrations; nothing is imported to find them."""
    names = {module.name for module in pkgutil.iter_modules() if module.ispkg and module.name.startswith(INTEGRATION)}
    for package in sorted(names):
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            provider = provider_id(package.removeprefix(INTEGRATION))
            table = _read_table(Path(folder, "data", "_profiles.py"))
            yield from ((name, profile, provider) for name, profile in table.items())


def _read_table(path: Path) -> Mapping[str, Any]:
    """The dictionary that the module assigns, when it is one of plain values."""
    try:
        module = ast.parse(path.read_bytes())
        for node in module.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if [getattr(target, "id", "") for target in targets] == ["_PROFILES"]:
                    return mapping(ast.literal_eval(node.value or "{}"))
    except (OSError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    return {}
