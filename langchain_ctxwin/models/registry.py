"""The registry: limits, prices and capabilities of models, and who stated each value."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Literal

from langchain_ctxwin.core.events import ModelChangeEvent
from langchain_ctxwin.core.limits import (
    LIMIT_FIELDS,
    for_everybody,
    models_behind,
    stated_limit,
)
from langchain_ctxwin.core.model_info import PRICE_FIELDS, ModelInfo, model_name
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.errors import (
    ConfigError,
    UnknownModelError,
    brief,
    expect,
    expect_each,
)
from langchain_ctxwin.models.apis import provider_at, provider_id
from langchain_ctxwin.models.names import Listing, Resolved, Statement, merged
from langchain_ctxwin.models.sources import (
    MODELS_DEV,
    CatalogSource,
    LearnedSource,
    ProfileSource,
    SnapshotSource,
    provider_of,
)
from langchain_ctxwin.protocols import Clock, MetricsSink, ModelSource
from langchain_ctxwin.reporting import Reporter
from langchain_ctxwin.util.log import log, reason_of
from langchain_ctxwin.util.work import in_daemon

PROFILE = "profile"
TTL_SECONDS = 3600.0  # facts about models change monthly, so that a shorter time would only ask more often
TIMEOUT_SECONDS = 9.0  # a little more than sources allow themselves
RETRY_SECONDS = 60.0  # until a source that failed is asked again
# How long a lookup waits when it finds the facts expired, once per refresh. A source on this machine or network answers
# in that time, a catalog of some thousand models is read in it on a busy machine; slower ones answer later lookups.
GRACE_SECONDS = 1.5

Catalogs = Literal["offline", "online"] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class _NamedModel:
    """A model as the caller named it."""

    name: str
    # id of the one that the chat model speaks to; empty when unknown
    provider: str = ""
    own: tuple[Statement, ...] = ()  # what the chat model's own profile states


@dataclass(slots=True, eq=False)
class _Asked:
    """A source, and how it stands with it."""

    name: str
    source: ModelSource
    due: float = -inf
    running: Future[None] | None = None
    fault: str = ""
    models: list[ModelInfo] | None = None  # None before its first answer


class ModelRegistry:
    """Knows limits, prices and capabilities of models by asking sources, and says of each value who stated it.

    Without arguments it knows what comes with the package. Sources count in the order of their tiers: explicit, learned
    from errors, provider API, LangChain profile, catalog, snapshot. They are asked in parallel, in the background, and
    again when `ttl_seconds` have passed; until they have answered, and while they fail, the old facts serve. The first
    lookup waits for them, at most nine seconds.

    Key init args:
        sources: `ModelSource`s; of one tier the first wins, of catalogs the smaller limit.
        ttl_seconds: after this time a source is asked again.
        clock: seconds since the epoch.
        catalogs: `"offline"` for the snapshot that comes with the package, `"online"` to ask models.dev, too, or a list
            of files and URLs; by default `"offline"` where no sources are given.
        allow_guess: guess a missing window from the output limit, marked as `guess`.
        sinks: take a `ModelChangeEvent` when a source states another limit or price than before.

    Raises:
        ConfigError: a source cannot be asked, `ttl_seconds` is no number above 0, or a sink has no `emit`.

    Use:
        ```python
        registry = ModelRegistry()
        info = registry.lookup("openai/gpt-5")
        engine = ContextEngine(limits=registry)  # asked about the model of each request
        ```
    """

    def __init__(
        self,
        sources: Iterable[ModelSource] | None = None,
        ttl_seconds: float = TTL_SECONDS,
        clock: Clock = time.time,
        *,
        catalogs: Catalogs | None = None,
        allow_guess: bool = False,
        sinks: Iterable[MetricsSink] = (),
    ) -> None:
        wanted = "a number of seconds above 0"
        if not expect(ttl_seconds, int | float, "ttl_seconds", wanted) > 0:
            raise ConfigError(f"ttl_seconds={ttl_seconds}: pass {wanted}")
        catalogs = catalogs or ("offline" if sources is None else ())
        wanted = "a list of model sources, objects with a method fetch(name)"
        own = expect_each(sources or (), ModelSource, "sources", wanted)
        memory = next((one for one in own if isinstance(one, LearnedSource)), None)
        self.is_shared_memory = memory is not None
        """True when a `LearnedSource` was passed: a limit that one conversation learns holds for others."""
        self._memory = memory or LearnedSource(clock=clock)
        others = [one for one in (*own, *_catalogs(catalogs)) if one is not memory]
        self._asked = _with_names([self._memory, *others])
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._allow_guess = allow_guess
        self._reporter = Reporter(sinks, clock=clock)
        self._lock = threading.Lock()
        self._listing = Listing()

    def lookup(self, model: Any) -> ModelInfo:
        """Return what is known about a model: a name, `provider/name`, or a chat model. May wait for sources.

        A bare name that several providers serve means the chat model's provider, else the model's maker, else the one
        with the smallest limits, with a warning.

        Raises:
            UnknownModelError: no source lists the model, or none states its window or input limit.
        """
        named = _named_model(model)
        self._settle()
        info = self._facts(named)
        if info is None:
            # an error is final, a moment of patience is not
            _wait(self._asked, TIMEOUT_SECONDS)
            info = self._facts(named)
        if info is None or not info.limits.known:
            raise UnknownModelError(self._unknown(named.name, info))
        return info

    async def alookup(self, model: Any) -> ModelInfo:
        """Like `lookup`, without blocking the event loop.

        Raises:
            UnknownModelError: as in `lookup`.
        """
        return await asyncio.wrap_future(in_daemon(partial(self.lookup, model)))

    def models(self, provider: str | None = None) -> list[ModelInfo]:
        """Return all listed models, or those of one provider, by provider and name; also those without limits."""
        self._settle()
        wanted = None if provider is None else provider_id(provider)
        every = self._listing.all()
        return [self._merged(one) for one in every if wanted in (None, one.provider)]

    def refresh(self) -> None:
        """Ask every source now and wait for the answers, for each only its limited time; failures are logged."""
        self._memory.refresh()
        _wait(self._asked, TIMEOUT_SECONDS)  # these answers do not count
        _wait(self._started(self._asked), TIMEOUT_SECONDS)

    @property
    def sources(self) -> dict[str, str]:
        """Each source, and why its last answer could not be had; empty when it was."""
        return {one.name: one.fault for one in self._asked[1:]}  # behind the memory

    def learn(self, name: Any, said: Any) -> None:
        """Remember what a provider stated: an exception, an error text, or a mapping of limits.

        It is remembered for the model that a lookup of this name finds, at its provider alone. What states no limit is
        passed over, and so is a limit far from what is known of the model, unless it is given as a mapping.

        Args:
            name: the model.
            said: what the provider said about it.

        Raises:
            ConfigError: a mapping holds something else than plausible limits.
        """
        limits: Mapping[str, int] = {}
        if isinstance(said, Mapping):
            limits = said
        elif overflow := classify_overflow(said):
            info = self._facts(_named_model(name))
            known = info.limits if info else None
            limits = for_everybody(stated_limit(overflow), known)
        if limits:
            self._memory.learn(self._filed(name), limits)
            self._fetch(self._asked[0])

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the limits learned under this name, so that a registry serves as an engine's `learned=`."""
        return self._memory.recall(self._filed(model))

    # ---- what sources state ------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Have the sources asked that are due, and wait: where old facts can serve, only for a moment."""
        now = self._clock()
        started = self._started([one for one in self._asked if now >= one.due])
        unheard = [one for one in started if one.models is None and not one.fault]
        _wait(unheard, TIMEOUT_SECONDS)
        _wait(started, GRACE_SECONDS)

    def _started(self, sources: Iterable[_Asked]) -> list[_Asked]:
        """Ask each source in a thread of its own, and return which; one that hangs is not asked again."""
        with self._lock:
            free = [one for one in sources if not one.running or one.running.done()]
            for one in free:
                one.due = self._clock() + RETRY_SECONDS
                one.running = in_daemon(partial(self._fetch, one))
        return free

    def _fetch(self, asked: _Asked) -> None:
        """Ask a source in this thread; an answer that comes too late to be waited for is used all the same."""
        try:
            models = list(asked.source.fetch(None))
        except Exception as error:  # noqa: BLE001  # a source may fail in any way: what it said before holds
            reason = reason_of(error)
            if asked.fault != reason:
                log.warning("models.source_failed", source=asked.name, reason=reason)
            asked.fault = reason
            return
        with self._lock:
            before, asked.fault = asked.models or [], ""
            if models != before:
                self._listing = Listing(
                    Statement(one.name, getattr(one.source, "tier", "provider"), info)
                    for one in self._asked
                    for info in (models if one is asked else one.models or ())
                )
            # at last: whoever finds an answer here finds it listed
            asked.models, asked.due = models, self._clock() + self._ttl_seconds
        for event in changes(asked.name, before, models):
            self._reporter.emit(event)

    # ---- what is known about a name ----------------------------------------------------------------------------------

    def _facts(self, named: _NamedModel) -> ModelInfo | None:
        """The merged facts about a model; None when no source knows it. Merged once while the lists stay."""
        listing = self._listing
        if named not in listing.facts:
            found = listing.resolve(named.name, named.provider)
            if found.is_ambiguous:
                log.warning(
                    "models.ambiguous",
                    model=named.name,
                    taken=found.full_name,
                    action="name the provider too, as in provider/name",
                )
            is_known = found.claims or named.own
            listing.facts[named] = self._merged(found, named.own) if is_known else None
        return listing.facts[named]

    def _merged(self, model: Resolved, more: Iterable[Statement] = ()) -> ModelInfo:
        info = merged(model, more)
        if info.limits.known or not (self._allow_guess and info.max_output_tokens):
            return info
        window = info.limits.guessed().context_window
        provenance = {**info.provenance, "context_window": "guess"}
        return replace(info, context_window=window, provenance=provenance)

    def _filed(self, name: Any) -> str:
        """The name under which something is learned: that of the listed model that is meant."""
        named = _NamedModel(name) if isinstance(name, str) else _named_model(name)
        return self._listing.resolve(named.name, named.provider).full_name

    def _unknown(self, name: str, info: ModelInfo | None) -> str:
        """Why nothing is known, and what to do."""
        said = "listed, but no source states its context window"
        if info is None:
            asked = [f"{name} {why}".strip() for name, why in self.sources.items()]
            said = f"listed by no source ({'; '.join(asked) or 'there are none'})"
        return (
            f"{name!r} is {said}: state its limits with an ExplicitSource, pass ModelLimits(context_window=...), ask "
            f"newer lists with ModelRegistry(catalogs='online'), or find its limit with `ctxwin models --probe {name}`"
        )


def changes(
    source: str, before: Iterable[ModelInfo], after: Iterable[ModelInfo]
) -> Iterator[ModelChangeEvent]:
    """Yield an event for each limit and price that a source states otherwise than before."""
    previous = {(info.provider, info.name): info for info in before}
    for new in after:
        old = previous.get((new.provider, new.name), new)
        name = f"{new.provider}/{new.name}" if new.provider else new.name
        for field in (*LIMIT_FIELDS, *PRICE_FIELDS):
            was, value = getattr(old, field), getattr(new, field)
            if was != value and None not in (was, value):
                yield ModelChangeEvent(
                    model=name,
                    field=field,
                    before=str(was),
                    after=str(value),
                    source=source,
                )


def _catalogs(catalogs: Catalogs) -> list[ModelSource]:
    if catalogs == "offline":
        return [SnapshotSource()]
    if catalogs == "online":
        return [CatalogSource(MODELS_DEV), SnapshotSource()]
    if isinstance(catalogs, str) or not isinstance(catalogs, Iterable):
        raise ConfigError(
            f'catalogs={catalogs!r}: give "offline", "online", or a list of files and URLs'
        )
    return [CatalogSource(one) for one in catalogs]


def _with_names(sources: Iterable[ModelSource]) -> list[_Asked]:
    """Sources by a name of their own, so that provenance and conflicts tell them apart."""
    named: dict[str, _Asked] = {}
    for source in sources:
        name = getattr(source, "name", None) or type(source).__name__
        name = f"{name} #{len(named) + 1}" if name in named else name
        named[name] = _Asked(name, source)
    return [*named.values()]


def _wait(sources: Iterable[_Asked], seconds: float) -> None:
    wait([one.running for one in sources if one.running], seconds)


def _named_model(model: Any) -> _NamedModel:
    """The model that a name, facts or a chat model stands for; bindings and fallbacks are looked through."""
    if isinstance(model, ModelInfo):
        return _NamedModel(model.name, model.provider or "")
    if isinstance(model, str) and model.strip():
        return _NamedModel(model.strip())
    part, bound = next(models_behind(model))
    names = (bound.get("model"), bound.get("model_name"), model_name(part))
    name = next((one for one in names if isinstance(one, str) and one.strip()), "")
    if not name:
        raise UnknownModelError(
            f"{brief(model)} names no model: pass a name such as 'provider/name', or a chat model"
        )
    own = ProfileSource((part,)).fetch(name)
    claims = tuple(Statement(PROFILE, PROFILE, info) for info in own)
    return _NamedModel(name, _served_by(part), claims)


def _served_by(model: Any) -> str:
    provider = provider_of(model) or ""
    address = getattr(model, "openai_api_base", None) or getattr(model, "base_url", "")
    # the one integration that is used for other providers' servers too
    if provider == "openai" and isinstance(address, str) and address:
        return provider_at(address)
    return provider
