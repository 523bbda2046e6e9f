"""Draws `window.png`: an agent with tools explores a folder of source code through a window of 8,192 tokens.

Every bar is one request that the offline model was sent, as `StepEvent`s tell of it.
Run it with matplotlib installed: `python docs/images/draw_window.py`.
"""

from itertools import accumulate
from pathlib import Path

import langchain_core
from langchain_core.messages import AnyMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from matplotlib.figure import Figure

from langchain_ctxwin import create_context_agent
from langchain_ctxwin.demo.stories import (
    EXPLORER_PROMPT,
    Folder,
    explore,
    interview,
    offline,
)
from langchain_ctxwin.observe import CompactionEvent, MemorySink, StepEvent
from langchain_ctxwin.testing import count_tokens

WINDOW = 8_192
STEPS = 90
REGIONS = {
    "system": ("system prompt", "#4c566a"),
    "tools": ("tools", "#8a94a8"),
    "pinned": ("pins", "#b48ead"),
    "summary": ("record of what left", "#d08770"),
    "history": ("history", "#5e81ac"),
}


def explored(steps: int = STEPS) -> tuple[MemorySink, list[AnyMessage]]:
    """Let the demo's agent answer questions until about `steps` requests were sent: events and history."""
    sink = MemorySink()
    folder = Folder.open(Path(langchain_core.__file__).parent)
    model = offline(WINDOW, explore)
    tools, thread = folder.tools(), {"configurable": {"thread_id": "1"}}
    agent = create_context_agent(
        model,
        tools,
        system_prompt=EXPLORER_PROMPT,
        checkpointer=InMemorySaver(),
        sinks=[sink],
    )
    for question, _ in interview(folder, window_tokens=WINDOW):
        agent.invoke({"messages": [("user", question)]}, thread)
        if len(sink.of(StepEvent)) >= steps:
            break
    return sink, agent.get_state(thread).values["messages"]


def unmanaged(history: list[AnyMessage]) -> list[int]:
    """Tokens that each request would have had with the whole history in it, as the model itself counts."""
    fixed = count_tokens([SystemMessage(EXPLORER_PROMPT)])
    sums = accumulate((count_tokens([message]) for message in history), initial=fixed)
    return [
        total
        for total, message in zip(sums, history, strict=False)
        if message.type == "ai"
    ]


def draw(sink: MemorySink, history: list[AnyMessage], path: Path) -> None:
    """Draw what was sent beside what would have been, above the regions of each request."""
    requests, compactions = sink.of(StepEvent), sink.of(CompactionEvent)
    limit, numbers = requests[-1].input_limit, range(1, len(requests) + 1)
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.6))
    sums = [0] * len(requests)
    for region, (label, color) in REGIONS.items():
        heights = [request.regions.get(region, 0) for request in requests]
        bottom.bar(numbers, heights, bottom=sums, width=1.0, label=label, color=color)
        sums = [total + height for total, height in zip(sums, heights, strict=True)]
    without = unmanaged(history)
    top.plot(
        range(1, len(without) + 1),
        without,
        color="#9a9a9a",
        linewidth=2,
        label="would have been sent unmanaged",
    )
    top.plot(numbers, sums, color="#5e81ac", linewidth=1.5, label="was sent")
    for axes in (top, bottom):
        axes.axhline(
            limit,
            color="#bf616a",
            linestyle="--",
            linewidth=1.2,
            label=f"input limit ({limit:,})",
        )
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_ylabel("tokens")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(ncols=3, fontsize=8, loc="upper left", frameon=False)
    facts = f"{len(requests)} requests, the largest {max(sums):,} tokens; {len(compactions)} compactions"
    top.set_title(
        f"{facts}; {without[-1]:,} tokens in the last one unmanaged", fontsize=10
    )
    bottom.set(
        xlabel="request", ylim=(0, 1.45 * limit), xlim=(0.5, len(requests) + 0.5)
    )
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    draw(*explored(), Path(__file__).with_name("window.png"))
