"""Draws `window.png`: an agent with tools explores a folder of source code through a window of 8,192 tokens.

Every bar is one request that the offline model was sent, as `StepEvent`s tell of it.
Run it with matplotlib installed: `python docs/images/draw_window.py`.
"""

from pathlib import Path

import langchain_core
from langchain_core.messages import AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from matplotlib.figure import Figure

from langchain_ctxwin import TokenEstimator, create_context_agent
from langchain_ctxwin.demo.explore import SYSTEM_PROMPT, Interview
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.offline_model import OfflineChatModel
from langchain_ctxwin.demo.tools import FolderTools
from langchain_ctxwin.observe import CompactionEvent, MemorySink, StepEvent

WINDOW = 8_192
STEPS = 90
REGIONS = {
    "system": ("system prompt", "#4c566a"),
    "tools": ("tools", "#8a94a8"),
    "pinned": ("pins", "#b48ead"),
    "summary": ("record of what left", "#d08770"),
    "history": ("history", "#5e81ac"),
}


def explore(steps: int = STEPS) -> tuple[MemorySink, list[AnyMessage]]:
    """Let the demo's agent answer questions until about `steps` requests were sent: events and history."""
    sink = MemorySink()
    folder = Folder.open(Path(langchain_core.__file__).parent)
    model = OfflineChatModel(context_window=WINDOW, max_tokens=1_024)
    tools, thread = FolderTools(folder).tools(), {"configurable": {"thread_id": "1"}}
    agent = create_context_agent(model, tools, system_prompt=SYSTEM_PROMPT, checkpointer=InMemorySaver(), sinks=[sink])
    for question, _ in Interview(folder, window_tokens=WINDOW).questions():
        agent.invoke({"messages": [("user", question)]}, thread)
        if len(sink.of(StepEvent)) >= steps:
            break
    return sink, agent.get_state(thread).values["messages"]


def draw(sink: MemorySink, history: list[AnyMessage], path: Path) -> None:
    """Draw the regions of each request under the limit."""
    requests, compactions = sink.of(StepEvent), sink.of(CompactionEvent)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes, numbers, bottoms = figure.subplots(), range(1, len(requests) + 1), [0] * len(requests)
    for region, (label, color) in REGIONS.items():
        heights = [request.regions.get(region, 0) for request in requests]
        axes.bar(numbers, heights, bottom=bottoms, width=1.0, label=label, color=color)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    limit = requests[-1].input_limit
    axes.axhline(limit, color="#bf616a", linestyle="--", linewidth=1.2, label=f"input limit ({limit:,})")
    facts = f"{len(requests)} requests, the largest {max(bottoms):,} tokens; {len(compactions)} compactions"
    title = f"{facts}; {TokenEstimator()(history):,} tokens of history in the state"
    axes.set(title=title, xlabel="request", ylabel="tokens", ylim=(0, 1.4 * limit), xlim=(0.5, len(requests) + 0.5))
    axes.legend(ncols=3, fontsize=8, loc="upper left")
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    draw(*explore(), Path(__file__).with_name("window.png"))
