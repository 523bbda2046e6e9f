"""The registry: what is known about a model, whoever knows it, and who said so; as a table, too."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from math import inf, isfinite
from typing import Any

from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.core.limits import MODEL_ARGUMENTS, for_everybody, models_behind, stated_limit
from langchain_ctxwin.core.model_info import ModelInfo, model_name
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.spending import worth_of
from langchain_ctxwin.errors import ConfigError, UnknownModelError, expect_each
from langchain_ctxwin.models.cache import SourceCache, SourceState
from langchain_ctxwin.models.merging import (
    GUESS,
    LEARNED,
    SHOWN_FIELDS,
    Claim,
    declared_limits,
    guessed,
    in_order,
    merged,
    stated_value,
)
from langchain_ctxwin.models.names import GENERIC, Resolved, key_of
from langchain_ctxwin.models.sources.explicit import ProfileSource, provider_of
from langchain_ctxwin.models.sources.learned import LearnedSource
from langchain_ctxwin.models.sources.platforms import provider_at, sources_of
from langchain_ctxwin.models.sources.reading import provider_id
from langchain_ctxwin.protocols import Clock, MetricsSink, ModelSource
from langchain_ctxwin.reporting import Reporter
from langchain_ctxwin.util.background import in_daemon
from langchain_ctxwin.util.files import place
from langchain_ctxwin.util.log import aligned, log
from langchain_ctxwin.util.memo import Seen
from langchain_ctxwin.util.work import Work, arun, run

APP = "langchain-ctxwin"  # the name of our folders in those of the platform
TTL_SECONDS = 3600.0  # facts about models change monthly, so that a shorter time would only ask more often
FLUSH_SECONDS = 5.0  # a few megabytes take well under a second on a local disk
TIMEOUT_SECONDS = 9.0  # a little more than sources allow themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One source's value of one field."""

    field: str
    source: str
    tier: str
    value: object
    counts: bool  # whether this is the value that was taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything known about one name."""

    asked: str
    info: ModelInfo | None  # as `lookup` returns it; None when it raises `UnknownModelError`
    problem: str  # the text of that error
    how: str  # it was found: by `name`, `alias` or `variant` (another date or suffix); empty when it is not listed
    others: tuple[str, ...]  # the same name at other providers, as `provider/name`
    statements: tuple[Statement, ...]  # by field, most trusted source first
    sources: tuple[SourceState, ...]


class ModelRegistry:
    """Knows limits, prices and capabilities of models by asking sources, and says of each value who stated it.

    Sources count in the order of their tiers: explicit, learned from errors, provider API, LangChain profile, catalog.
    They are asked in parallel, in the background, and again when `ttl_seconds` have passed; until they have answered,
    and while they fail, the old facts serve. The first lookup waits for them, at most `timeout_seconds`.

    Key init args:
        sources: `ModelSource`s; of one tier the first wins, of catalogs the smaller limit.
        ttl_seconds: after this time a source is asked again.
        clock: seconds since the epoch.
        cache_path: file in which processes share what slow sources stated; None keeps it in memory.
        timeout_seconds: longest wait for one source.
        allow_guess: guess a missing window from the output limit, marked as `guess`, as a `GuessSource` does.
        sinks: are told, by a `ModelChangeEvent` each, when a source states another limit or price than before.

    Raises:
        ConfigError: a source cannot be asked, a time is not positive, the path names no place, or a sink has no `emit`.

    Use:
        ```python
        registry = ModelRegistry([ExplicitSource({"my-model": 32_768}), CatalogSource("models.json")])
        registry.lookup("my-model").limits.context_window  # 32768
        ```
    """

    def __init__(
        self,
        sources: Iterable[ModelSource],
        ttl_seconds: float = TTL_SECONDS,
        clock: Clock = time.time,
        *,
        cache_path: str | os.PathLike[str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        allow_guess: bool = False,
        sinks: Iterable[MetricsSink] | Reporter = (),
    ) -> None:
        for name, seconds in (("ttl_seconds", ttl_seconds), ("timeout_seconds", timeout_seconds)):
            if not (seconds > 0 and isfinite(seconds)):
                raise ConfigError(f"{name}={seconds!r}: give a positive number of seconds")
        named = list(_with_names(sources))
        memories = [source for _, source in named if isinstance(source, LearnedSource)]
        self._memories = memories or [LearnedSource(clock=clock)]
        self.is_shared_memory = bool(memories)
        """True when a `LearnedSource` was passed: what one conversation hears of a limit is told to others."""
        self._clock = clock
        self._warned = Seen()
        self._allow_guess = allow_guess or any(getattr(source, "tier", None) == GUESS for _, source in named)
        self._cache = SourceCache(
            named,
            ttl_seconds=ttl_seconds,
            clock=clock,
            timeout_seconds=timeout_seconds,
            cache_path=None if cache_path is None else place(cache_path),
            reporter=sinks if isinstance(sinks, Reporter) else Reporter(sinks, own=(), clock=clock),
        )

    @classmethod
    def standard(
        cls,
        *,
        sources: Sequence[ModelSource] = (),
        models: Sequence[Any] = (),
        catalogs: Sequence[str | os.PathLike[str]] = (),
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ModelRegistry:
        """Return a registry of everything that this machine offers, with its files in the platform's folders.

        APIs whose usual key variable is set, an Ollama server whose `OLLAMA_HOST` is set, the profiles of `models` and
        of the installed integrations, what was learned before, and the given `catalogs` (files or URLs). Without a key
        or an address nothing is asked. Given `sources` come first; `options` are those of the registry.
        """
        import platformdirs  # noqa: PLC0415  # not needed to look a model up

        found = sources_of(os.environ if environment is None else environment, models=models, catalogs=catalogs)
        learned = LearnedSource(platformdirs.user_data_path(APP) / "learned.json")
        options.setdefault("cache_path", platformdirs.user_cache_path(APP) / "models.json")
        return cls([*sources, learned, *found], **options)

    def lookup(self, model: Any) -> ModelInfo:
        """Return what is known about a model: a name, `provider/name`, or a chat model. May wait for sources.

        A bare name that several providers serve means the chat model's provider, else the model's maker, else the one
        with the smallest limits, with a warning. Deprecated models are answered, with one warning each.

        Raises:
            UnknownModelError: no source lists the model, or none states its window or input limit.
        """
        return self._answer(run(self._settled(model)))

    async def alookup(self, model: Any) -> ModelInfo:
        """Like `lookup`, without blocking the event loop.

        Raises:
            UnknownModelError: as in `lookup`.
        """
        return self._answer(await arun(self._settled(model)))

    def models(self, provider: str | None = None) -> list[ModelInfo]:
        """Return all listed models, or those of one provider, by provider and name; also those without limits."""
        run(self._cache.settled())
        wanted = None if provider is None else {provider.casefold(), provider_id(provider)}
        listed = self._cache.listing.all()
        infos = [self._merged(one, self._claims(_Asked(name=one.name), one)) for one in listed]
        return [info for info in infos if wanted is None or (info.provider or "").casefold() in wanted]

    async def amodels(self, provider: str | None = None) -> list[ModelInfo]:
        """Like `models`, without blocking the event loop."""
        found: list[ModelInfo] = await asyncio.wrap_future(in_daemon(partial(self.models, provider)))
        return found

    def refresh(self) -> None:
        """Ask every source now and wait for the answers, for each only its limited time; failures are logged."""
        self._cache.refresh()

    async def arefresh(self) -> None:
        """Like `refresh`, without blocking the event loop."""
        await asyncio.wrap_future(in_daemon(self.refresh))

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """How each source is doing: what it lists, how old that is, and what is wrong with it."""
        return self._cache.states()

    def learn(self, name: Any, said: Any) -> None:
        """Remember what a provider stated: an exception, an error text, or a mapping of limits. Returns at once.

        Under a chat model or `provider/name` it is remembered for that provider alone; under a bare name for all, where
        it only lowers what a provider itself states. What states no limit is passed over, and so is a limit far from
        what is declared of the model, unless it is given as a mapping.

        Args:
            name: the model.
            said: what the provider said about it.

        Raises:
            ConfigError: a mapping holds something else than plausible limits.
        """
        asked = _Asked(name=name) if isinstance(name, str) else _asked_about(name)
        if isinstance(said, Mapping) and not said.keys() & {"error", "message", "detail"}:
            limits: Mapping[str, int] = said  # the caller's own word
        elif (overflow := classify_overflow(said)) is None:
            return
        else:
            info = self._facts(asked)
            stated = stated_limit(overflow, info.limits if info else None)
            limits = for_everybody(stated, declared_limits(info) if info else None)
        if limits:
            filed = f"{asked.provider}/{asked.name}" if asked.provider else self._spelled(asked.name)
            self._memories[0].learn(filed, limits)

    def accepted(self, name: Any, tokens: int) -> None:
        """Take up that a provider took an input of this size: learned limits below it are forgotten."""
        asked = _Asked(name=name) if isinstance(name, str) else _asked_about(name)
        filed = [f"{asked.provider}/{asked.name}"] if asked.provider else []
        for memory in self._memories:
            for spelling in dict.fromkeys([*filed, self._spelled(asked.name), asked.name]):
                memory.accepted(spelling, tokens)

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the limits learned under this name, so that a registry serves as an engine's `learned=`."""
        return self._memories[0].recall(self._spelled(model)) or self._memories[0].recall(model)

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until what was fetched and learned is in its file; false when that takes longer.

        A program that ends within seconds calls this, or each run of it asks all sources again.
        """
        deadline = time.monotonic() + timeout_seconds
        is_learned_saved = [memory.flush(max(0.0, deadline - time.monotonic())) for memory in self._memories]
        return self._cache.flush(max(0.0, deadline - time.monotonic())) and all(is_learned_saved)

    def explain(self, model: Any) -> Explanation:
        """Return who states what about a model, which statement counts, and how each source is doing."""
        asked = run(self._settled(model))
        resolved = self._cache.listing.resolve(asked.name, asked.provider)
        claims = in_order(self._claims(asked, resolved))
        try:
            info, problem = self._answer(asked), ""
        except UnknownModelError as error:
            info, problem = None, str(error)
        provenance = info.provenance if info else {}
        return Explanation(
            asked=asked.name,
            info=info,
            problem=problem,
            how=resolved.how,
            others=resolved.others,
            statements=tuple(
                Statement(
                    field=field,
                    source=claim.source,
                    tier=claim.tier,
                    value=value,
                    counts=provenance.get(field) == claim.source
                    and (field == "aliases" or getattr(info, field) == value),
                )
                for field in SHOWN_FIELDS
                for claim in claims
                if (value := stated_value(claim.info, field)) is not None
            ),
            sources=self._cache.states(),
        )

    def _settled(self, model: Any) -> Work[_Asked]:
        """Have sources asked that are due, as far as this model is worth waiting for them."""
        asked = _asked_about(model)
        tail = asked.name.partition("/")[2]  # a source that lists nothing is asked with the provider and without

        def knows() -> bool:
            info = self._facts(asked)
            return info is not None and info.limits.known

        yield from self._cache.settled((asked.name, tail) if tail else (asked.name,), knows)
        return asked

    def _answer(self, asked: _Asked) -> ModelInfo:
        info = self._facts(asked)
        if info is None or not info.limits.known:
            raise UnknownModelError(self._unknown(asked.name, info))
        if info.deprecated or info.retires_on is not None:  # told once, and again when the day has come
            today = datetime.fromtimestamp(self._clock(), UTC).date()
            is_retired = info.retires_on is not None and info.retires_on <= today
            event, when = ("retired", "now") if is_retired else ("deprecated", "in time")
            if self._warned.is_new((event, info.provider, info.name)):
                day, action = info.retires_on and info.retires_on.isoformat(), f"choose another {when}"
                log.warning(f"models.{event}", model=info.name, provider=info.provider, retires_on=day, action=action)
        return info

    def _unknown(self, name: str, info: ModelInfo | None) -> str:
        """Why nothing is known, the nearest of the known names, and what to do."""
        remedy = "state its limits with an ExplicitSource, or pass ModelLimits(context_window=...)"
        if info is not None:
            guess = ", or allow a guess from its output limit" if info.max_output_tokens else ""
            return f"{name!r} is listed, but no source states its context window: {remedy}{guess}"
        states = (f"{one.name} failed: {one.fault}" if one.fault else one.name for one in self._cache.states())
        near = ", ".join(self._cache.listing.like(name))
        nearest = f"; the nearest known names are {near}" if near else ""
        return f"{name!r} is listed by no source ({'; '.join(states) or 'there are none'}){nearest}: {remedy}"

    def _facts(self, asked: _Asked) -> ModelInfo | None:
        """What is known, merged once while no source states something else; None when nobody knows the model."""
        listing = self._cache.listing
        info = None if asked.own else listing.merged.get((asked.name, asked.provider))
        if info is not None and not self._learned(asked, Resolved(name=info.name, provider=info.provider)):
            return info
        resolved = listing.resolve(asked.name, asked.provider)
        if resolved.is_ambiguous and self._warned.is_new(("ambiguous", asked.name)):
            taken, action = f"{resolved.provider}/{resolved.name}", "name the provider too, as in provider/name"
            log.warning("models.ambiguous", model=asked.name, taken=taken, others=resolved.others, action=action)
        claims = self._claims(asked, resolved)
        if not claims:
            return None
        info = self._merged(resolved, claims)
        if len(claims) == len(resolved.claims):  # nothing but what is listed
            listing.merged.put((asked.name, asked.provider), info)
        return info

    def _merged(self, model: Resolved, claims: Sequence[Claim]) -> ModelInfo:
        info = merged(model.name, model.provider, claims)
        return guessed(info) if self._allow_guess else info

    def _claims(self, asked: _Asked, resolved: Resolved) -> list[Claim]:
        """All that is said about a model: in lists, by its own profile, and in errors."""
        return [*resolved.claims, *asked.own, *self._learned(asked, resolved)]

    def _learned(self, asked: _Asked, model: Resolved) -> list[Claim]:
        """What was learned about a model; the first name about which something is known counts.

        What was heard with the provider counts as it is. What was heard under a bare name may be another provider's
        limit, so that it only lowers what the model's own provider states.
        """
        served_by = [one for one in (asked.provider, model.provider) if one]
        exact = [f"{one}/{spelling}" for one in served_by for spelling in (asked.name, model.name)]
        bare = [model.name, f"models/{model.name}"]
        (exact if key_of(asked.name) != key_of(model.name) and "/" in asked.name else bare).insert(0, asked.name)
        return self._heard(exact) or _lowering(self._heard(bare), model.claims if model.provider else ())

    def _heard(self, names: Iterable[str]) -> list[Claim]:
        known = list(dict.fromkeys(names))
        found = [next((infos for name in known if (infos := memory.fetch(name))), []) for memory in self._memories]
        return [Claim(source=LEARNED, tier=LEARNED, info=info) for infos in found for info in infos]

    def _spelled(self, name: str) -> str:
        """A name with its provider's id, however that was spelled; another name as it is."""
        head, slash, tail = name.partition("/")
        provider = provider_id(head) if slash and tail else ""
        return f"{provider}/{tail}" if provider in self._cache.listing.providers - {GENERIC} else name


def _lowering(heard: Sequence[Claim], listed: Sequence[Claim]) -> list[Claim]:
    """What was heard without limits above those that the model's own provider states."""
    own = [claim.info for claim in listed if claim.tier == "provider"]
    window = next((info.context_window for info in own if info.context_window), inf)
    largest_input = next((info.max_input_tokens for info in own if info.max_input_tokens), window)
    tops = {"context_window": window, "max_input_tokens": largest_input}
    lowered = []
    for claim in heard:
        higher: dict[str, Any] = {name: None for name, top in tops.items() if (getattr(claim.info, name) or 0) > top}
        lowered.append(replace(claim, info=replace(claim.info, **higher)))
    return lowered


def _with_names(sources: Iterable[ModelSource]) -> Iterator[tuple[str, ModelSource]]:
    """Give each source a name of its own, so that provenance and conflicts tell them apart."""
    numbers: Counter[str] = Counter()
    for source in expect_each(sources, object, "sources", "a list of model sources, such as CatalogSource(path)"):
        if isinstance(source, type) or not callable(getattr(source, "fetch", None)):
            raise ConfigError(f"{source!r} is no model source: give objects with a method fetch(name)")
        stated = getattr(source, "name", None)
        name = stated if isinstance(stated, str) and stated else type(source).__name__
        numbers[name] += 1
        yield name if numbers[name] == 1 else f"{name} #{numbers[name]}", source


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A model as the caller named it."""

    name: str
    provider: str = ""  # id of the one that the chat model speaks to; empty when unknown
    own: tuple[Claim, ...] = ()  # what the chat model's own profile states


def _asked_about(model: Any) -> _Asked:
    """What a name, facts, or a chat model (bindings and fallbacks are looked through) ask about."""
    if isinstance(model, ModelInfo):
        return _Asked(name=model.name, provider=model.provider or "")
    part, bound = next(iter(models_behind(model)), (model, {}))
    name = model if isinstance(model, str) else next((bound[key] for key in MODEL_ARGUMENTS if bound.get(key)), None)
    name = name or model_name(part)
    if not isinstance(name, str) or not name.strip():
        shown = repr(model) if isinstance(model, str) else type(model).__name__
        remedy = "pass a name such as 'provider/name', or a chat model that has one"
        raise UnknownModelError(f"{shown} names no model: {remedy}")
    if isinstance(model, str):
        return _Asked(name=name.strip())
    provider = provider_of(part) or ""
    addresses = (getattr(part, key, None) for key in ("openai_api_base", "base_url"))
    address = next((url for url in addresses if isinstance(url, str) and url), "")
    if provider == "openai" and address:  # the one integration that is used for other providers' servers too
        provider = ""
        with suppress(ValueError):
            provider = provider_at(address)
    source = ProfileSource((part,), installed=False)
    infos = (info for info in source.fetch(None) if key_of(info.name) == key_of(name))
    own = tuple(Claim(source=source.name, tier=source.tier, info=info) for info in infos)
    return _Asked(name=name, provider=provider, own=own)


UNKNOWN = "-"
NUMBERS = ("WINDOW", "INPUT", "OUTPUT", "$ IN", "$ OUT", "$ CACHED")
HEADINGS = ("MODEL", "PROVIDER", *NUMBERS, "CAN", "WINDOW FROM", "NOTES")
LEGEND = "Tokens; USD per million tokens; INPUT is a limit of its own beside the window; - is unknown."

# How a capability is shown; others only in the explanation.
CAPABILITY_LETTERS = {
    "tools": "T",
    "images": "I",
    "audio": "A",
    "video": "V",
    "pdf": "P",
    "structured_output": "S",
    "reasoning": "R",
}


def model_table(infos: Sequence[ModelInfo]) -> Iterator[str]:
    """Yield the lines of a table of models; a conflict is a field of which some source states another value."""
    rows: list[tuple[str, ...]] = []
    for info in infos:
        limits = (info.context_window, info.max_input_tokens, info.max_output_tokens)
        prices = (info.input_price, info.output_price, info.cache_read_price)
        letters = "".join(letter for name, letter in CAPABILITY_LETTERS.items() if name in info.capabilities)
        source = info.provenance.get("context_window") or info.provenance.get("max_input_tokens")
        words = (letters or UNKNOWN, source or UNKNOWN, "; ".join(_notes(info)))
        rows.append((info.name, info.provider or UNKNOWN, *map(_shown, (*limits, *prices)), *words))
    yield from aligned([HEADINGS, *rows], right=frozenset(NUMBERS))
    yield LEGEND
    yield "CAN: " + ", ".join(f"{letter} {name}" for name, letter in CAPABILITY_LETTERS.items())


def source_lines(states: Iterable[SourceState]) -> Iterator[str]:
    """Yield a line per source: how many models it lists, how old that is, and what is wrong with it."""
    for state in states:
        plural = "" if state.models == 1 else "s"
        age = ""
        if (seconds := state.age_seconds) is not None:
            age = f", asked {f'{seconds:.0f} s' if seconds < 60 else f'{seconds / 60:,.0f} min'} ago"  # noqa: PLR2004
        fault = f": {state.fault}" if state.fault else ""
        yield f"{state.name} ({state.tier}): {state.models:,} model{plural}{age}{fault}"


def explanation_lines(found: Explanation) -> Iterator[str]:
    """Yield what is known about one model, field by field, with every source that states it."""
    if found.info is None:
        yield found.problem
    else:
        provider = f"{found.info.provider}/" if found.info.provider else ""
        asked = "" if found.how in ("name", "") else f" (found for {found.asked!r} by {found.how})"
        yield f"{provider}{found.info.name}{asked}"
        yield from (f"  {note}" for note in _notes(found.info))
    rows = [
        (f"  {'*' if said.counts else ' '} {said.field}", _shown(said.value), f"{said.source} ({said.tier})")
        for said in found.statements
    ]
    yield from aligned(rows)
    if rows:
        yield "  * the value that counts"
    if found.info:
        yield _full_window(found.info)
    if found.others:
        yield f"  also served as {', '.join(found.others)}"
    for line in source_lines(state for state in found.sources if state.fault):
        yield f"  could not be asked: {line}"


def _full_window(info: ModelInfo) -> str:
    """What compacting a full window of a model costs and saves, by its prices and the default settings."""
    limit = info.limits.input_limit(info.limits.output_reserve())
    settings = ContextConfig()
    after = int((settings.keep + settings.record_share) * limit)
    worth = worth_of(info, before=limit, after=after, prefix=0)
    if worth.once_cost is None or worth.saved_cost is None:
        return "  a full window: what a compaction costs and saves is unknown, because a price is"
    calls = worth.pays_after_calls
    pays = "it never pays for itself" if calls is None else f"it has paid for itself after {calls:.1f} calls"
    return (
        f"  a full window of {limit:,} tokens, compacted to {after:,}: costs ${worth.once_cost:.4f} once (the prompt "
        f"cache is written anew) and saves ${worth.saved_cost:.4f} with each call, {pays}"
    )


def _notes(info: ModelInfo) -> Iterator[str]:
    if info.deprecated:
        yield "deprecated"
    if info.retires_on:
        yield f"retires {info.retires_on.isoformat()}"
    if info.conflicts:
        yield f"sources disagree: {', '.join(info.conflicts)}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, frozenset | tuple):
        return ", ".join(sorted(map(str, value)))
    return UNKNOWN if value is None else str(value)
