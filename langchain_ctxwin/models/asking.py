"""Which model is asked about: a name, or the one that a chat model speaks to?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain_ctxwin.core.limits import MODEL_ARGUMENTS, models_behind
from langchain_ctxwin.core.model_families import model_name
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import UnknownModelError
from langchain_ctxwin.models.merging import Claim
from langchain_ctxwin.models.names import key_of
from langchain_ctxwin.models.sources.hosts import provider_at
from langchain_ctxwin.models.sources.profile import ProfileSource, provider_of

ADDRESS_ARGUMENTS = ("openai_api_base", "base_url")
"""Where OpenAI's client keeps the address of another server that speaks its language."""

ADAPTABLE = "openai"
"""The one integration that is used for other providers' servers too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A model as the caller named it."""

    name: str
    provider: str = ""
    """Id of the provider that the chat model speaks to; empty when unknown."""

    own: tuple[Claim, ...] = ()
    """What the chat model's own profile states."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name as it was given, and without a provider, to ask sources that list nothing."""
        tail = self.name.partition("/")[2]
        return (self.name, tail) if tail else (self.name,)


def asked_about(model: Any) -> Asked:
    """Return what a name, facts, or a chat model (bindings and fallbacks are looked through) ask about.

    Raises:
        UnknownModelError: it has no name.
    """
    if isinstance(model, str):
        return _named(model, model)
    if isinstance(model, ModelInfo):
        return Asked(name=model.name, provider=model.provider or "")
    part, bound = next(iter(models_behind(model)), (model, {}))
    name = next((bound[key] for key in MODEL_ARGUMENTS if bound.get(key)), None) or model_name(part)
    _named(name, model)
    return Asked(name=name, provider=_served_by(part), own=_own(part, name))


def _named(name: Any, model: object) -> Asked:
    if isinstance(name, str) and name.strip():
        return Asked(name=name.strip())
    shown = repr(model) if isinstance(model, str) else type(model).__name__
    raise UnknownModelError(
        f"{shown} names no model: pass a name such as 'provider/name', or a chat model that has one"
    )


def _served_by(part: Any) -> str:
    provider = provider_of(part) or ""
    address = next((url for key in ADDRESS_ARGUMENTS if isinstance(url := getattr(part, key, None), str) and url), "")
    return _host_provider(address) if provider == ADAPTABLE and address else provider


def _host_provider(address: str) -> str:
    """The provider behind an address; an unknown server is one of its own."""
    try:
        return provider_at(address)
    except ValueError:
        return ""


def _own(part: Any, name: str) -> tuple[Claim, ...]:
    source = ProfileSource((part,), installed=False)
    infos = (info for info in source.fetch(None) if key_of(info.name) == key_of(name))
    return tuple(Claim(source=source.name, tier=source.tier, info=info) for info in infos)
