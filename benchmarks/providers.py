"""What providers manage themselves: rules kept, blocks kept, counts and cost, ours beside LangChain's own middleware.

The servers of the tests keep the providers' published rules, the real integrations stand in between: no data is needed.
"""

from __future__ import annotations

import logging
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from deepagents import create_deep_agent
from langchain.agents import create_agent

from common import head, parser_of, row

MOVING = "moving: Gemini, Anthropic, OpenAI, Ollama, llama.cpp and back"
TESTS = Path(__file__).parents[1] / "tests"
COLUMNS = (
    "requests", "refused", "failed turns", "blocks kept", "next count off by", "breakpoints", "cached", "cost",
)  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__, data="")
    parser.add_argument("--only", default="", help="talks whose name holds this")
    only = parser.parse_args().only
    sys.path.insert(0, str(TESTS))
    logging.disable(logging.WARNING)
    from support.gguf_model import write_model
    from support.llama_server import LlamaServer
    from support.provider_talks import (
        TALKS,
        composed,
        moving,
        play,
        play_peer,
    )

    print(
        "ours beside SummarizationMiddleware with AnthropicPromptCachingMiddleware where there is one;"
    )
    print(
        "cost in uncached input tokens; the count of the next request is off by (middle / 95 % / most)\n"
    )
    head("talk", "who", *COLUMNS, left=range(2 + len(COLUMNS)))
    for name, talk in TALKS.items():
        for who, by in (("ours", play), ("langchain", play_peer)):
            if only in name:
                row(name, who, *cells(talk(by)))
    for who, on, window, local in movers() if only in MOVING else ():
        with TemporaryDirectory() as folder:
            llama = LlamaServer(write_model(Path(folder) / "tiny.gguf"), n_ctx=local)
            row(MOVING, who, *cells(moving(on, llama, window=window)))
    for make in (create_agent, create_deep_agent):
        figures = cells(composed(make, ours_first=True))
        row(make.__name__, "ours, then caching", *figures)


def movers():
    """Who holds the conversation that moves between providers."""
    from support.provider_talks import (
        DEEP_WINDOW,
        LOCAL_WINDOW,
        PROMPT,
        WINDOW,
        look,
        ours_on,
        peer_on,
    )

    def deep_on(model, window, saver):
        # it compacts by what the profile of a model states
        model = model.model_copy(update={"profile": {"max_input_tokens": window}})
        return create_deep_agent(
            model, [look], system_prompt=PROMPT, checkpointer=saver
        )

    yield "ours", ours_on, WINDOW, LOCAL_WINDOW
    yield "langchain", peer_on, WINDOW, LOCAL_WINDOW
    yield f"ours, {DEEP_WINDOW:,}", ours_on, DEEP_WINDOW, DEEP_WINDOW
    yield f"deepagents, {DEEP_WINDOW:,}", deep_on, DEEP_WINDOW, DEEP_WINDOW


def cells(outcome):
    off, errors = "-", sorted(outcome.errors)
    if errors:
        middle, rare = statistics.median(errors), errors[int(0.95 * len(errors))]
        off = f"{middle:.1%} / {rare:.1%} / {errors[-1]:.1%}"
    kept = f"{sum(outcome.kept)} of {len(outcome.kept)}" if outcome.kept else "-"
    counted = (outcome.requests, len(outcome.refused), outcome.failed_turns)
    marks, cached = max(outcome.breakpoints), f"{outcome.cached_share:.0%}"
    return [*counted, kept, off, marks, cached, f"{outcome.cost:,.0f}"]


if __name__ == "__main__":
    main()
