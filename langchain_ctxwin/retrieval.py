"""`BudgetedRetriever`: the most relevant whole chunks within a token budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, Literal, Self

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
    Callbacks,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import patch_config
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    field_validator,
    model_validator,
)

from langchain_ctxwin.config import explained
from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.model_info import family_of
from langchain_ctxwin.core.tokens import TokenEstimator, text_price
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.util.log import log

# keys of scores of which was told that they are distances
_rising = set[object]()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalResult:
    """The documents that a retrieval kept and those that it dropped, both in descending relevance.

    Attributes:
        documents: The kept chunks, whole: copies whose `metadata["truncated"]` repeats the flag `truncated`.
        dropped: Every other chunk that the base found, unchanged: over the budget, or beyond `k`.
        truncated: True when the budget left something out. What only `k` left out was asked for and does not count.
        tokens: Tokens of the kept chunks: of their text, or of what `price_document` says that the prompt shows of
            each.
    """

    documents: tuple[Document, ...]
    dropped: tuple[Document, ...]
    truncated: bool
    tokens: int


class _Budgeted(BaseModel):
    """The settings and the selection that the retriever and the compressor share."""

    max_context_tokens: Annotated[int, Field(gt=0)] = 8192
    score: str | Callable[[Document], float | None] = "score"
    k: Annotated[int, Field(gt=0)] | None = None
    score_order: Literal["auto", "similarity", "distance"] = "auto"
    counter: Callable[..., int] | None = None
    model: Any = None
    price_document: Callable[[Document], str | int] | None = None

    def _price(self) -> Callable[[Document], int]:
        """Prices a document by the counter, else as the estimator of the model's family does."""
        counter = self.counter
        if counter is None and self.model is not None:
            counter = TokenEstimator(family_of(self.model))
        price = text_price(counter)
        content_of = self.price_document or (lambda document: document.page_content)

        def size(document: Document) -> int:
            said = content_of(document)
            return said if isinstance(said, int) else price(said)

        return size

    def _is_distance(self, score: object, numbers: list[float | None]) -> bool:
        """True when less is better: by `score_order`, else where scores rise, as a base returns the best first."""
        # a function is the caller's own and says relevance
        if self.score_order != "auto" or callable(score):
            return self.score_order == "distance"
        scores = [number for number in numbers if number is not None]
        if scores == sorted(scores) and len(set(scores)) > 1:
            if score not in _rising:
                _rising.add(score)
                advice = (
                    "score_order='similarity' if more is better, 'distance' to confirm"
                )
                log.warning(
                    "retrieval.distances",
                    score=score,
                    first=scores[0],
                    last=scores[-1],
                    advice=advice,
                )
            return True
        return False

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: Any) -> Any:
        if model is None or hasattr(model, "tokenizer_family"):
            return model
        return expect(
            model, Runnable, "model", "the chat model that the chunks are for"
        )

    @model_validator(mode="wrap")
    @classmethod
    def _raise_config_error(
        cls, values: Any, handler: ModelWrapValidatorHandler[Self]
    ) -> Self:
        # an instance, perhaps of another member of a union: pydantic's to refuse
        if not isinstance(values, dict):
            return handler(values)
        try:
            return handler(values)
        except ValidationError as error:
            raise ConfigError(explained(error, cls)) from error

    def _select(
        self,
        results: Any,
        k: int | None,
        max_context_tokens: int | None = None,
    ) -> RetrievalResult:
        budget, score = max_context_tokens or self.max_context_tokens, self.score
        # what cannot be gone through is refused as a document that is none
        found = results if isinstance(results, Iterable) else [results]
        documents = [_scored(one, score) for one in found]
        of = score if callable(score) else (lambda one: one.metadata.get(score))
        numbers = [_number(of(one)) for one in documents]
        ranked = _by_relevance(
            documents, numbers, is_distance=self._is_distance(score, numbers)
        )
        count = len(ranked) if k is None else k
        fit = take_while_fits(ranked[:count], budget, self._price())
        is_truncated = bool(fit.dropped)
        if is_truncated:
            log.warning(
                "retrieval.truncated",
                kept=len(fit.kept),
                dropped=len(ranked) - len(fit.kept),
                tokens=fit.tokens,
                budget=budget,
            )
        return RetrievalResult(
            documents=tuple(
                _with(document, truncated=is_truncated) for document in fit.kept
            ),
            dropped=(*fit.dropped, *ranked[count:]),
            truncated=is_truncated,
            tokens=fit.tokens,
        )


class BudgetedRetriever(_Budgeted, BaseRetriever):
    r"""A retriever whose documents fit a token budget, most relevant first.

    It takes what any retriever finds (or a Runnable or function from a query to documents, or to pairs of a document
    and its score), orders it by relevance, and keeps whole chunks until the next one would exceed the budget. When even
    the first chunk is too large, the result is empty and truncated.

    Documents without a score, or whose score is not a number (NaN included), follow the others in the base's order.

    Nothing is left out silently. `retrieve` returns what was dropped, each kept document says so in
    `metadata["truncated"]`, and a warning `retrieval.truncated` carries `kept`, `dropped`, `tokens` and `budget`. The
    base's documents are never changed, and the instance holds no state between calls.

    Setup:
        `pip install langchain-ctxwin`

    Key init args:
        base: a retriever, another Runnable or a function of the query; it should find more than the budget holds.
        max_context_tokens: budget of one retrieval, in tokens (8,192).
        score: metadata key of the relevance (`"score"`), or a function, for which higher is better.
        score_order: `"similarity"` (higher is better) or `"distance"` (lower is). With `"auto"` scores that rise in the
            base's own order, and never fall, are distances: a base answers best first. It is logged once, as
            `retrieval.distances`. Of a function more is better unless `"distance"` says otherwise.
        k: consider only the `k` most relevant chunks; what only `k` leaves out is dropped but not truncated.
        model: the chat model that the chunks are for: without a counter they are counted as it does.
        price_document: what the prompt shows of a document, as a text (`lambda d: f"<doc>{d.page_content}</doc>\n"`) or
            as a number of tokens; by default its text alone counts.
        counter: a `TokenCounter`, asked for each chunk's text alone where it has `count_text`; `None` is
            `TokenEstimator()`, `count_tokens_approximately` works too.

        Arguments that are unknown, of the wrong type or out of range raise `ConfigError`.

    Instantiate:
        Vector stores return scores beside the documents, not in them: wrap the search that does.

        ```python
        def search(query):
            return store.similarity_search_with_relevance_scores(query, k=50)


        retriever = BudgetedRetriever(base=search, max_context_tokens=4096)
        ```

    Use:
        ```python
        documents = retriever.invoke("How are refunds handled?")
        result = retriever.retrieve(
            "How are refunds handled?", k=5, max_context_tokens=2000
        )
        result.tokens, result.truncated, len(result.dropped)
        ```
    """

    model_config = ConfigDict(extra="forbid")

    base: Runnable[str, Any]

    @field_validator("base", mode="before")
    @classmethod
    def _check_base(cls, base: Any) -> Any:
        if callable(base) and not isinstance(base, Runnable | type):
            return RunnableLambda(base)
        wanted = "a retriever, such as store.as_retriever(search_kwargs={'k': 50}), or a function of the query"
        return expect(base, Runnable, "base", wanted)

    def retrieve(
        self,
        query: str,
        *,
        k: int | None = None,
        max_context_tokens: int | None = None,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> RetrievalResult:
        """Retrieve documents together with what was left out; `k` and the budget win over those it was made with.

        Other keyword arguments go to the base, whose run is the only one that callbacks hear of.

        Raises:
            ConfigError: `k` or `max_context_tokens` is not positive, or the base found something else than documents.
        """
        _check(k=k, max_context_tokens=max_context_tokens)
        found = self.base.invoke(query, config, **kwargs)
        return self._select(found, k or self.k, max_context_tokens)

    async def aretrieve(
        self,
        query: str,
        *,
        k: int | None = None,
        max_context_tokens: int | None = None,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> RetrievalResult:
        """Like `retrieve`, through the base's async path."""
        _check(k=k, max_context_tokens=max_context_tokens)
        found = await self.base.ainvoke(query, config, **kwargs)
        return self._select(found, k or self.k, max_context_tokens)

    def invoke(
        self,
        input: str,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:  # the host's name
        """Return the documents that fit; takes the arguments of `retrieve`, those of the base included."""
        return super().invoke(input, config, caller=config, **kwargs)

    async def ainvoke(
        self,
        input: str,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:  # the host's name
        """Like `invoke`, through the base's async path."""
        return await super().ainvoke(input, config, caller=config, **kwargs)

    # The caller's config goes along: `configurable` is where per-user filters of the base live.

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        caller: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        config = patch_config(caller, callbacks=run_manager.get_child())
        return [*self.retrieve(query, config=config, **kwargs).documents]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        caller: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        config = patch_config(caller, callbacks=run_manager.get_child())
        return [*(await self.aretrieve(query, config=config, **kwargs)).documents]


class BudgetedCompressor(_Budgeted, BaseDocumentCompressor):
    """The selection of `BudgetedRetriever` as a document compressor: same order, marks and warning, query ignored.

    Key init args:
        The arguments of `BudgetedRetriever` without `base`; all have defaults.

    Use:
        ```python
        compressor = BudgetedCompressor(
            max_context_tokens=4096, score="relevance_score"
        )
        retriever = ContextualCompressionRetriever(
            base_compressor=compressor, base_retriever=base
        )
        documents = compressor.compress_documents(documents, "How are refunds handled?")
        ```
    """

    model_config = ConfigDict(extra="forbid")

    def compress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Callbacks | None = None,
    ) -> list[Document]:
        """Return copies of the documents that fit, most relevant first."""
        # the interface passes them; the score decides and no run is started
        del (query, callbacks)
        return list(self._select(documents, self.k).documents)


def _check(**limits: int | None) -> None:
    for name, value in limits.items():
        if value is not None and expect(value, int, name, "a number") < 1:
            raise ConfigError(
                f"{name}={value} keeps no document: pass at least 1, or None for the retriever's own"
            )


def _scored(result: Any, score: str | Callable[[Document], float | None]) -> Document:
    """A document; one that comes with its score has it in the metadata."""
    match result:
        case Document():
            return result
        case (Document() as document, number) if isinstance(
            result, tuple
        ):  # a list of two is a batch
            return _with(
                document, **{score if isinstance(score, str) else "score": number}
            )
    raise ConfigError(
        f"the base found {result!r:.80}: it has to return documents, or pairs (document, score)"
    )


def _with(document: Document, /, **metadata: Any) -> Document:
    return document.model_copy(update={"metadata": {**document.metadata, **metadata}})


def _number(score: object) -> float | None:
    """A score as a number; None for what is none (NaN included)."""
    # numpy's scalars are `Real`
    if isinstance(score, bool) or not isinstance(score, Real):
        return None
    return None if math.isnan(score) else float(score)


def _by_relevance(
    documents: Sequence[Document], numbers: Sequence[float | None], *, is_distance: bool
) -> list[Document]:
    """The documents, the most relevant first; those without a score follow in their own order."""
    sign = 1 if is_distance else -1

    def place(scored: tuple[float | None, Document]) -> tuple[bool, float]:
        return scored[0] is None, sign * (scored[0] or 0.0)

    pairs = sorted(zip(numbers, documents, strict=True), key=place)
    return [document for _, document in pairs]
