"""An OpenAI agent whose own model writes the summaries: it reads the conversation from the prompt cache."""

from typing import Any

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ContextConfig
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware

CONFIG = ContextConfig(
    max_history_tokens=8_000,  # a huge window need not be filled
    summary_sections=("Decisions: what was decided, and why", "Open: what is not done"),
)


def run(model: Any, notes: list[str]) -> dict[str, Any]:
    """Tell the agent all notes in one thread, and return its state."""
    agent = create_agent(
        model,
        middleware=[ContextWindowMiddleware(summarizer=model, config=CONFIG)],
        state_schema=ContextAgentState,
        checkpointer=InMemorySaver(),
    )
    thread: Any = {"configurable": {"thread_id": "1"}}
    for note in notes:
        agent.invoke({"messages": [("user", note)]}, thread)
    return dict(agent.get_state(thread).values)


if __name__ == "__main__":
    from langchain_openai import ChatOpenAI

    state = run(
        ChatOpenAI(model="gpt-5-mini"),
        [f"Note {number}: " + "we build boats. " * 200 for number in range(20)],
    )
    print(state["messages"][-1].text)
    print(state["context_report"])
