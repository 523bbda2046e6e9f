"""Which models may answer, and what is known about each of them before any money is spent?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from langchain_core.language_models import BaseChatModel

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_families import UNKNOWN_FAMILY, family_of, model_name
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.recovery import only_model
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.errors import ConfigError, UnknownModelError

Given = Any
"""A candidate as the caller passes it: a chat model, a binding around one, a `ModelInfo`, or `provider:name`."""

PROFILE_KEYS = {
    "tools": "tool_calling",
    "images": "image_inputs",
    "structured_output": "structured_output",
    "audio": "audio_inputs",
    "video": "video_inputs",
    "pdf": "pdf_inputs",
    "reasoning": "reasoning_output",
}
"""Where a LangChain profile states a capability."""


class Registry(Protocol):
    """What a router asks of a `ModelRegistry`; one with a method `accepted(model, tokens)` hears of accepted inputs."""

    def lookup(self, model: Any) -> ModelInfo:
        """Return the facts about a model, by name or by chat model, or raise `UnknownModelError`."""
        ...

    def learn(self, name: Any, said: Any) -> None:
        """Remember the limits that a provider stated for a model, given by its facts."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One model that may answer."""

    name: str
    given: Given
    """As the caller passed it."""

    info: ModelInfo
    limits: ModelLimits
    """Limits of the model, with what its requests are set to ask for."""

    family: str
    """Tokenizer family."""

    @property
    def has_model(self) -> bool:
        """True when the caller passed a model; of others only the name is known until they are called."""
        return not isinstance(self.given, str | ModelInfo)

    def states(self, capability: str) -> bool | None:
        """Say whether the model has a capability; None when nobody says."""
        if self.info.capabilities:
            return capability in self.info.capabilities
        part = only_model(self.given) if self.has_model else None
        profile = getattr(part[0], "profile", None) if part else None
        stated = profile.get(PROFILE_KEYS.get(capability, capability)) if isinstance(profile, Mapping) else None
        return stated if isinstance(stated, bool) else None


def candidates_of(given: Sequence[Given] | Mapping[str, Given], registry: Registry | None) -> tuple[Candidate, ...]:
    """Read the facts of every candidate; a mapping gives them names.

    Raises:
        ConfigError: there are none, two have one name, or one is no model.
        UnknownModelError: the limits of a candidate are not known.
    """
    named = [*given.items()] if isinstance(given, Mapping) else [(_name_of(one), one) for one in _listed(given)]
    if not named:
        raise ConfigError("candidates is empty: pass at least one chat model, ModelInfo or name")
    _require_distinct([name for name, _ in named])
    return tuple(candidate(name, one, registry) for name, one in named)


def candidate(name: str, given: Given, registry: Registry | None) -> Candidate:
    """Return one candidate with its facts as they are now."""
    info = _info(name, given, registry)
    limits = _with_request(info.limits, given)
    if not limits.known:
        raise UnknownModelError(
            f"the context window of candidate {name!r} is unknown: pass a registry that knows it, a model whose "
            "profile states max_input_tokens, or ModelInfo(name=..., context_window=...)"
        )
    return Candidate(name=name, given=given, info=info, limits=limits, family=_family(info, given))


def _listed(given: Iterable[Given]) -> list[Given]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"candidates={given!r}: pass a list of chat models, ModelInfos or names")
    return list(given)


def _name_of(given: Given) -> str:
    if isinstance(given, str):
        return _registry_name(given)
    if isinstance(given, ModelInfo):
        return f"{given.provider}/{given.name}" if given.provider else given.name
    part = only_model(given)
    if part is None or not isinstance(part[0], BaseChatModel):
        raise ConfigError(
            f"candidate {type(given).__name__} is no chat model: pass a chat model, a binding of one, a ModelInfo or a "
            "name like 'provider:name'; fallbacks and alternatives become candidates of their own"
        )
    return model_name(given) or type(part[0]).__name__


def _registry_name(name: str) -> str:
    """The name with a slash behind the provider: `init_chat_model` puts a colon there."""
    if not name.strip():
        raise ConfigError(f"candidate {name!r}: give a name like 'provider:name'")
    provider, colon, rest = name.strip().partition(":")
    return f"{provider}/{rest}" if colon and rest and "/" not in provider else name.strip()


def _require_distinct(names: list[str]) -> None:
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigError(
            f"candidates {doubled} are given more than once: remove one, or pass a mapping like "
            "{'fast': model, 'spare': model} to tell them apart"
        )


def _info(name: str, given: Given, registry: Registry | None) -> ModelInfo:
    """Facts of the registry, completed by what the model states about itself; a `ModelInfo` stands as it is."""
    if isinstance(given, ModelInfo):
        return given
    known = _looked_up(given if not isinstance(given, str) else _registry_name(given), registry)
    if known is not None and (known.limits.known or isinstance(given, str)):
        return known
    if isinstance(given, str):
        raise UnknownModelError(
            f"candidate {name!r}: nothing is known about a model of this name: pass a registry that knows it, or "
            "ModelInfo(name=..., provider=..., context_window=...)"
        )
    return _completed(known or ModelInfo(name=model_name(given) or name), ModelLimits.of(given))


def _looked_up(model: Any, registry: Registry | None) -> ModelInfo | None:
    if registry is None:
        return None
    part = None if isinstance(model, str) else only_model(model)
    try:
        return registry.lookup(part[0] if part else model)
    except UnknownModelError:
        return None


def _completed(info: ModelInfo, own: ModelLimits) -> ModelInfo:
    return replace(
        info,
        context_window=own.context_window,
        max_input_tokens=own.max_input_tokens,
        max_output_tokens=own.max_output_tokens,
        provenance={**info.provenance, "context_window": own.source},
    )


def _with_request(limits: ModelLimits, given: Given) -> ModelLimits:
    """The limits with the output that requests are set to ask for; a table that contradicts that is not believed."""
    requested = None if isinstance(given, str | ModelInfo) else ModelLimits.of(given).requested_output_tokens
    if requested is None or (limits.context_window is not None and requested >= limits.context_window):
        return limits
    largest = limits.max_output_tokens
    believed = largest if largest is None or largest >= requested else None
    return replace(limits, requested_output_tokens=requested, max_output_tokens=believed)


def _family(info: ModelInfo, given: Given) -> str:
    if info.tokenizer_family in FRAMING:
        return str(info.tokenizer_family)
    return UNKNOWN_FAMILY if isinstance(given, str | ModelInfo) else family_of(given)
