"""What is known about a model, whoever knows it?"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError, UnknownModelError
from langchain_ctxwin.models.answers import Answers
from langchain_ctxwin.models.asking import Asked, asked_about
from langchain_ctxwin.models.environment import LEARNED_FILE, SNAPSHOTS_FILE, cache_folder, data_folder, sources_of
from langchain_ctxwin.models.explaining import Explanation, SourceState, statements_of
from langchain_ctxwin.models.feed import tier_of
from langchain_ctxwin.models.files import place
from langchain_ctxwin.models.memories import Memory, limits_in
from langchain_ctxwin.models.merging import GUESS
from langchain_ctxwin.models.names import GENERIC
from langchain_ctxwin.models.notices import Notices, unknown
from langchain_ctxwin.models.refreshing import Feeds
from langchain_ctxwin.models.sources.learned import LearnedSource
from langchain_ctxwin.models.values import provider_id
from langchain_ctxwin.protocols import Clock, ModelSource
from langchain_ctxwin.util.background import in_daemon

TTL_SECONDS = 3600.0
"""An hour: facts about models change monthly, so that a shorter time would only ask more often."""

FLUSH_SECONDS = 5.0
"""How long `flush` waits unless told: a few megabytes take well under a second on a local disk."""

TIMEOUT_SECONDS = 9.0
"""Longest wait for sources, a little more than they allow themselves."""


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

    Raises:
        ConfigError: a source cannot be asked, a time is not positive, or the path names no place.

    Instantiate:
        ```python
        registry = ModelRegistry(
            [ExplicitSource({"my-model": {"context_window": 32_768}}), CatalogSource("models.json")]
        )
        ```

    Use:
        ```python
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
    ) -> None:
        for name, seconds in (("ttl_seconds", ttl_seconds), ("timeout_seconds", timeout_seconds)):
            if not (seconds > 0 and isfinite(seconds)):
                raise ConfigError(f"{name}={seconds!r}: give a positive number of seconds")
        named = list(_named(sources))
        memories: list[Memory] = [source for _, source in named if isinstance(source, Memory)]
        self._memories = memories or [LearnedSource(clock=clock)]
        self._notices = Notices(clock)
        guesses = allow_guess or any(tier_of(source) == GUESS for _, source in named)
        self._answers = Answers(self._memories, self._notices, allow_guess=guesses)
        self._feeds = Feeds(
            [(name, source) for name, source in named if not isinstance(source, Memory)],
            ttl_seconds=ttl_seconds,
            clock=clock,
            timeout_seconds=timeout_seconds,
            cache_path=None if cache_path is None else place(cache_path),
            beside=[memory.refresh for memory in self._memories],
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
        found = sources_of(os.environ if environment is None else environment, models=models, catalogs=catalogs)
        learned = LearnedSource(data_folder() / LEARNED_FILE)
        options.setdefault("cache_path", cache_folder() / SNAPSHOTS_FILE)
        return cls([*sources, learned, *found], **options)

    def lookup(self, model: Any) -> ModelInfo:
        """Return what is known about a model: a name, `provider/name`, or a chat model. May wait for sources.

        A bare name that several providers serve means the chat model's provider, else the model's maker, else the one
        with the smallest limits, with a warning. Deprecated models are answered, with one warning each.

        Raises:
            UnknownModelError: no source lists the model, or none states its window or input limit.
        """
        asked = asked_about(model)
        self._settle(asked)
        return self._answer(asked)

    async def alookup(self, model: Any) -> ModelInfo:
        """Like `lookup`, without blocking the event loop.

        Raises:
            UnknownModelError: as in `lookup`.
        """
        asked = asked_about(model)
        if not self._is_settled(asked):
            await asyncio.shield(asyncio.wrap_future(self._feeds.settling()))
        if not self._is_settled(asked) and self._needs_more(asked):
            await asyncio.wrap_future(in_daemon(partial(self._settle, asked)))
        return self._answer(asked)

    def models(self, provider: str | None = None) -> list[ModelInfo]:
        """Return all listed models, or those of one provider, by provider and name; also those without limits."""
        self._feeds.settle()
        wanted = None if provider is None else {provider.casefold(), provider_id(provider)}
        infos = self._answers.all(self._feeds.listing)
        return [info for info in infos if wanted is None or (info.provider or "").casefold() in wanted]

    async def amodels(self, provider: str | None = None) -> list[ModelInfo]:
        """Like `models`, without blocking the event loop."""
        found: list[ModelInfo] = await asyncio.wrap_future(in_daemon(partial(self.models, provider)))
        return found

    def refresh(self) -> None:
        """Ask every source now and wait for the answers, for each only its limited time; failures are logged."""
        self._feeds.refresh()

    async def arefresh(self) -> None:
        """Like `refresh`, without blocking the event loop."""
        await asyncio.wrap_future(in_daemon(self.refresh))

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """How each source is doing: what it lists, how old that is, and what is wrong with it."""
        return tuple(self._feeds.states())

    def learn(self, name: Any, said: Any, *, request: Iterable[str] = ()) -> None:
        """Remember what a provider stated: an exception, an error text, or a mapping of limits. Returns at once.

        Under a chat model or `provider/name` it is remembered for that provider alone; under a bare name for all, where
        it only lowers what a provider itself states. What states no limit is passed over, and so is a limit far from
        what is declared of the model, unless it is given as a mapping.

        Args:
            name: the model.
            said: what the provider said about it.
            request: the texts of the refused request; what the error quotes of them is not the provider's word.

        Raises:
            ConfigError: a mapping holds something else than plausible limits.
        """
        asked = Asked(name=name) if isinstance(name, str) else asked_about(name)
        filed = f"{asked.provider}/{asked.name}" if asked.provider else self._spelled(asked.name)
        info = None if isinstance(said, Mapping) else self._answers.facts(asked, self._feeds.listing)
        if limits := limits_in(said, info, request):
            self._memories[0].learn(filed, limits)

    def accepted(self, name: Any, tokens: int) -> None:
        """Take up that a provider took an input of this size: learned limits below it are forgotten."""
        asked = Asked(name=name) if isinstance(name, str) else asked_about(name)
        filed = [f"{asked.provider}/{asked.name}"] if asked.provider else []
        for memory in self._memories:
            if (forget := getattr(memory, "accepted", None)) is not None:
                for spelling in dict.fromkeys([*filed, self._spelled(asked.name), asked.name]):
                    forget(spelling, tokens)

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the limits learned under this name, so that a registry serves as an engine's `learned=`."""
        return self._memories[0].recall(self._spelled(model)) or self._memories[0].recall(model)

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until what was fetched is in the file of `cache_path`; false when that takes longer.

        A program that ends within seconds calls this, or each run of it asks all sources again.
        """
        return self._feeds.flush(timeout_seconds)

    def explain(self, model: Any) -> Explanation:
        """Return who states what about a model, which statement counts, and how each source is doing."""
        asked = asked_about(model)
        self._settle(asked)
        resolved = self._feeds.listing.resolve(asked.name, asked.provider)
        claims = self._answers.claims(asked, resolved)
        try:
            info, problem = self._answer(asked), ""
        except UnknownModelError as error:
            info, problem = None, str(error)
        return Explanation(
            asked=asked.name,
            info=info,
            problem=problem,
            how=resolved.how if resolved else "",
            others=resolved.others if resolved else (),
            statements=statements_of(info, claims),
            sources=self._feeds.states(),
        )

    def _settle(self, asked: Asked) -> None:
        if self._is_settled(asked):
            return
        self._feeds.settle()
        self._feeds.ask(asked.names, has_facts=self._has_facts(asked))
        if not self._has_facts(asked):
            self._feeds.finish()  # before a name is called unknown, what is on its way is waited for

    def _is_settled(self, asked: Asked) -> bool:
        if self._feeds.is_settled(asked.names):
            return True
        return self._feeds.is_settled(asked.names, has_facts=True) and self._has_facts(asked)

    def _needs_more(self, asked: Asked) -> bool:
        return not self._has_facts(asked) or bool(self._feeds.askable(asked.names, has_facts=True))

    def _has_facts(self, asked: Asked) -> bool:
        info = self._answers.facts(asked, self._feeds.listing)
        return info is not None and info.limits.known

    def _spelled(self, name: str) -> str:
        """A name with its provider's id, however that was spelled; another name as it is."""
        head, slash, tail = name.partition("/")
        provider = provider_id(head) if slash and tail else ""
        return f"{provider}/{tail}" if provider in self._feeds.listing.names.providers - {GENERIC} else name

    def _answer(self, asked: Asked) -> ModelInfo:
        listing = self._feeds.listing
        info = self._answers.facts(asked, listing)
        if info is None or not info.limits.known:
            near = listing.names.like(asked.name) if info is None else ()
            raise UnknownModelError(unknown(asked.name, info, near, self._feeds.states()))
        self._notices.retirement(info)
        return info


def _named(sources: Iterable[ModelSource]) -> Iterator[tuple[str, ModelSource]]:
    """Give each source a name of its own, so that provenance and conflicts tell them apart."""
    taken: set[str] = set()
    for source in sources:
        if isinstance(source, type) or not callable(getattr(source, "fetch", None)):
            raise ConfigError(f"{source!r} is no model source: give objects with a method fetch(name)")
        stated = getattr(source, "name", None)
        base = name = stated if isinstance(stated, str) and stated else type(source).__name__
        number = 1
        while name in taken:
            number += 1
            name = f"{base} #{number}"
        taken.add(name)
        yield name, source
