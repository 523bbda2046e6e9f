"""`BudgetedRetriever`: the most relevant whole chunks within a token budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from operator import itemgetter
from typing import Annotated, Any, Literal, Self

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever, RetrieverLike
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import patch_config
from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from langchain_ctxwin.config import RetrievalConfig
from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.tokens import text_price
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.util.log import log


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalResult:
    """What a retrieval kept and what it left out, both in descending relevance."""

    documents: tuple[Document, ...]
    """The kept chunks, whole: copies whose `metadata["truncated"]` repeats the flag below."""

    dropped: tuple[Document, ...]
    """Every other chunk that the base found, unchanged: over the budget, or beyond `k`."""

    truncated: bool
    """True when the budget left something out. What only `k` left out was asked for and does not count."""

    tokens: int
    """Tokens of the kept chunks' text; separators and headings that a prompt adds around them are not included."""


class _Budgeted(BaseModel):
    """The settings and the selection that the retriever and the compressor share."""

    max_context_tokens: Annotated[int, Field(gt=0)] = Field(
        default_factory=lambda: RetrievalConfig().max_context_tokens
    )
    """Budget of one retrieval, in tokens."""

    score: str | Callable[[Document], float | None] = Field(default_factory=lambda: RetrievalConfig().score)
    """Metadata key of a chunk's relevance, or a function that returns it; higher is better."""

    k: Annotated[int, Field(gt=0)] | None = Field(default_factory=lambda: RetrievalConfig().k)
    """Consider only the `k` most relevant chunks."""

    counter: Callable[..., int] | None = None
    """Counts tokens: a `TokenCounter`; one that has `count_text` is asked for each chunk's text alone."""

    on_overflow: Literal["stop", "skip"] = Field(default_factory=lambda: RetrievalConfig().on_overflow)
    """End at the first chunk that does not fit, or skip it and go on with smaller ones."""

    @classmethod
    def from_config(cls, config: RetrievalConfig, **fields: Any) -> Self:
        """Make one from settings, for example those of a file; `fields` are the other arguments and win over them."""
        return cls(**{**config.model_dump(), **fields})

    @model_validator(mode="wrap")
    @classmethod
    def _raise_config_error(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(values, dict):  # an instance, perhaps of another member of a union: pydantic's to refuse
            return handler(values)
        try:
            return handler(values)
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, e['loc']))}={e['input']!r:.80}: {e['msg']}" for e in error.errors())
            raise ConfigError(f"invalid {cls.__name__}: " + "; ".join(problems)) from error

    def _select(self, documents: Iterable[Document], k: int | None) -> RetrievalResult:
        ranked = _by_relevance(documents, self.score)
        count = len(ranked) if k is None else k
        price = text_price(self.counter)
        fit = take_while_fits(
            ranked[:count],
            self.max_context_tokens,
            lambda document: price(document.page_content),
            on_overflow=self.on_overflow,
        )
        if fit.truncated:
            log.warning(
                "retrieval.truncated",
                kept=len(fit.kept),
                dropped=len(ranked) - len(fit.kept),
                tokens=fit.tokens,
                budget=self.max_context_tokens,
            )
        return RetrievalResult(
            documents=tuple(_marked(document, truncated=fit.truncated) for document in fit.kept),
            dropped=(*fit.dropped, *ranked[count:]),
            truncated=fit.truncated,
            tokens=fit.tokens,
        )


class BudgetedRetriever(_Budgeted, BaseRetriever):
    """A retriever whose documents fit a token budget, most relevant first.

    It wraps any retriever (or Runnable from a query to documents), orders what that finds by descending score, and
    keeps whole chunks until the next one would exceed the budget. Documents without a score, or whose score is not a
    number (NaN included), follow the others in the base's order. Nothing is left out silently: `retrieve` returns what
    was dropped, each kept document says so in `metadata["truncated"]`, and a warning `retrieval.truncated`
    carries `kept`, `dropped`, `tokens` and `budget`. When even the first chunk is too big the result is empty and
    truncated. The base's documents are never changed, and the instance holds no state between calls.

    Setup:
        `pip install langchain-ctxwin`

    Key init args:
        base: `BaseRetriever` or `Runnable[str, list[Document]]`
            Finds the documents. It should find more than the budget holds; this class only leaves out.
        max_context_tokens: `int`
            Budget of one retrieval, in tokens (8,192).
        score: `str` or `Callable[[Document], float | None]`
            Metadata key of the relevance (`"score"`), or a function; higher is better, so negate distances.
        k: `int | None`
            Consider only the `k` most relevant chunks; what only `k` leaves out is dropped but not truncated.
        counter: `TokenCounter | None`
            Counts tokens; `None` is `TokenEstimator()`. `count_tokens_approximately` works too.
        on_overflow: `"stop"` or `"skip"`
            Stop at the first chunk that does not fit, or skip it and go on with smaller ones.

        Defaults come from `RetrievalConfig` when the retriever is made, so that environment variables such as
        `CTXWIN_RETRIEVAL_K` count; `from_config` takes the settings of a file. Arguments that are unknown, of the wrong
        type or out of range raise `ConfigError`.

    Instantiate:
        Vector stores return scores beside the documents, not in them: put them into the metadata first.

        ```python
        from langchain_core.runnables import chain


        @chain
        def scored(query: str) -> list[Document]:
            found = vectorstore.similarity_search_with_score(query, k=50)
            return [d.model_copy(update={"metadata": {**d.metadata, "score": s}}) for d, s in found]


        retriever = BudgetedRetriever(base=scored, max_context_tokens=4096)
        ```

    Use:
        ```python
        documents = retriever.invoke("How are refunds handled?")
        result = retriever.retrieve("How are refunds handled?", k=5)
        result.tokens, result.truncated, len(result.dropped)
        ```
    """

    model_config = ConfigDict(extra="forbid")

    base: RetrieverLike
    """Finds the documents; called as a child run with the caller's config."""

    def retrieve(
        self, query: str, *, k: int | None = None, config: RunnableConfig | None = None, **kwargs: Any
    ) -> RetrievalResult:
        """Retrieve documents together with what was left out; `k` wins over the retriever's own.

        Other keyword arguments go to the base. It is one retriever run with the base as its child, like `invoke`.

        Raises:
            ConfigError: `k` is not positive.
        """
        call = _Call(k=self._checked(k), config=config)
        super().invoke(query, config, call=call, **kwargs)
        return call.results[0]

    async def aretrieve(
        self, query: str, *, k: int | None = None, config: RunnableConfig | None = None, **kwargs: Any
    ) -> RetrievalResult:
        """Like `retrieve`, through the base's async path."""
        call = _Call(k=self._checked(k), config=config)
        await super().ainvoke(query, config, call=call, **kwargs)
        return call.results[0]

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:  # noqa: A002  # the host's name
        """Return the documents that fit; takes `k` and the base's keyword arguments, see `retrieve`."""
        return list(self.retrieve(input, config=config, **kwargs).documents)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:  # noqa: A002  # the host's name
        """Like `invoke`, through the base's async path."""
        return list((await self.aretrieve(input, config=config, **kwargs)).documents)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, call: _Call | None = None, **kwargs: Any
    ) -> list[Document]:
        call = call or _Call(k=self.k)
        found = self.base.invoke(query, call.child_config(run_manager), **kwargs)
        return call.finish(self._select(found, call.k))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, call: _Call | None = None, **kwargs: Any
    ) -> list[Document]:
        call = call or _Call(k=self.k)
        found = await self.base.ainvoke(query, call.child_config(run_manager), **kwargs)
        return call.finish(self._select(found, call.k))

    def _checked(self, k: int | None) -> int | None:
        if k is not None and k < 1:
            raise ConfigError(f"k={k} keeps no document: pass at least 1, or None for the retriever's own ({self.k})")
        return self.k if k is None else k


class BudgetedCompressor(_Budgeted, BaseDocumentCompressor):
    """The selection of `BudgetedRetriever` as a document compressor: same order, marks and warning, query ignored.

    Setup:
        `pip install langchain-ctxwin`

    Key init args:
        The arguments of `BudgetedRetriever` without `base`; all have defaults.

    Instantiate:
        ```python
        compressor = BudgetedCompressor(max_context_tokens=4096, score="relevance_score")
        ```

    Use:
        ```python
        retriever = ContextualCompressionRetriever(base_compressor=compressor, base_retriever=base)
        documents = compressor.compress_documents(documents, "How are refunds handled?")
        ```
    """

    model_config = ConfigDict(extra="forbid")

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return copies of the documents that fit, most relevant first."""
        del query, callbacks  # the interface passes them; the score decides and no run is started
        return list(self._select(documents, self.k).documents)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One retrieval on its way through the host's run, which carries only a query in and only documents out."""

    k: int | None
    config: RunnableConfig | None = None
    results: list[RetrievalResult] = field(default_factory=list)

    def child_config(self, run: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun) -> RunnableConfig:
        # the caller's config goes along: `configurable` is where per-user filters of the base live
        return patch_config(self.config, callbacks=run.get_child())

    def finish(self, result: RetrievalResult) -> list[Document]:
        self.results.append(result)
        return list(result.documents)


def _by_relevance(documents: Iterable[Document], score: str | Callable[[Document], float | None]) -> list[Document]:
    def relevance(document: Document) -> float | None:
        return _number(document.metadata.get(score) if isinstance(score, str) else score(document))

    rated = [(relevance(document), document) for document in documents]
    scored = [pair for pair in rated if pair[0] is not None]
    scored.sort(key=itemgetter(0), reverse=True)  # `reverse` keeps equal scores in their order
    return [document for _, document in scored] + [document for number, document in rated if number is None]


def _number(score: object) -> float | None:
    if isinstance(score, bool) or not isinstance(score, Real):  # numpy's scalars are `Real`
        return None
    try:
        number = float(score)
    except OverflowError:  # an integer beyond every float is no relevance
        return None
    return None if math.isnan(number) else number


def _marked(document: Document, *, truncated: bool) -> Document:
    return document.model_copy(update={"metadata": {**document.metadata, "truncated": truncated}})
