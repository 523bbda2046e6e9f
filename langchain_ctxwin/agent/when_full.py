"""What becomes of a conversation that no longer fits its candidate: it is compacted there, or moves to a larger one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.spending import MOST_CALLS, CostComparison, Course, compared
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.errors import NoModelFitsError
from langchain_ctxwin.routing import ModelRouter, Request, Route

Shrunk = Callable[[Window], Compaction | None]
"""Plans the compaction that makes a request fit; None when nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """A conversation on its way to a model call.

    Args:
        router: chooses among the candidates.
        known: the candidate that the conversation went to.
        windows: the request as measured for each tokenizer family; for that of `known`, as measured for it.
        shrunk: plans the compaction that makes it fit.
        summary_tokens: length of the summary that a model writes for a compaction; 0 when none does.
    """

    router: ModelRouter
    known: str
    windows: Mapping[str, Window]
    shrunk: Shrunk
    summary_tokens: int = 0

    def route(self, request: Request, route: Route) -> tuple[Route, CostComparison | None]:
        """Return where the conversation goes, and the comparison of costs when it could have stayed and been compacted.

        Args:
            request: the request as the router knows it.
            route: the candidate that takes it as it stands.
        """
        config = self.router.config
        candidate = next((one for one in self.router.candidates if one.name == self.known), None)
        if candidate is None or route.name == self.known or config.when_full == "move" or request.prefer:
            return route, None
        window = self.windows[candidate.family]
        compaction = self.shrunk(window) if window.over_by and config.sticky else None
        if compaction is None:
            return route, None
        comparison = self._compared(window, compaction, request, route)
        if config.when_full == "cheaper" and not comparison.is_cheaper_to_compact:
            return route, comparison
        try:
            kept = self.router.decide(replace(request, prefer=self.known, prefer_reason=f"compacts: {comparison}"))
        except NoModelFitsError:
            return route, None
        return (
            (kept, comparison) if kept.name == self.known else (route, None)
        )  # else it is in trouble, or cannot do it

    def _compared(self, window: Window, compaction: Compaction, request: Request, route: Route) -> CostComparison:
        """What compacting and moving cost from here on, by how the conversation grew so far."""
        stays, view = self.router.candidates, window.priced_view
        info = next(one.info for one in stays if one.name == self.known)
        steps = [step.tokens for step in view.steps]
        prefix = window.report["system_tokens"] + window.report["tool_tokens"]
        added = max(1, sum(steps) // max(1, len(steps)))
        output = self.router.config.expected_output_tokens
        seen = (
            request.cached_tokens
            if request.cached_tokens is not None
            else view.total_tokens - (steps[-1] if steps else 0)
        )
        stay = Course(
            info=info,
            tokens=max(view.total_tokens, window.budget.input_limit + 1),
            limit=window.budget.input_limit,
            low=compaction.tokens_after,
            prefix_tokens=prefix,
            cached_tokens=seen,
            added_tokens=added,
            output_tokens=output,
            summary_tokens=self.summary_tokens,
        )
        limit = self.router.input_limit(route.name, request)
        kept = max(0, compaction.tokens_after - prefix) / max(1, window.budget.input_limit - prefix)
        move = replace(
            stay,
            info=route.info,
            tokens=route.estimated_tokens,
            limit=limit,
            low=prefix + int(kept * max(0, limit - prefix)),
            cached_tokens=0,
        )
        answers = (one for one in reversed(window.request.messages) if isinstance(one, AIMessage))
        return compared(self.known, stay, route.name, move, calls_so_far=sum(1 for _ in islice(answers, MOST_CALLS)))
