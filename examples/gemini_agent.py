"""A Gemini agent with a tool: every request fits, and the report says what it held."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware


@tool
def stock(part: str) -> str:
    """Return how many pieces of a part are in stock."""
    return f"{len(part) * 7} pieces of {part}"


def run(model: Any, questions: list[str]) -> dict[str, Any]:
    """Ask one question after the other in one thread, and return the report of the last request."""
    agent = create_agent(
        model,
        [stock],
        middleware=[ContextWindowMiddleware()],
        state_schema=ContextAgentState,
        checkpointer=InMemorySaver(),
    )
    thread: Any = {"configurable": {"thread_id": "1"}}
    for question in questions:
        print(
            agent.invoke({"messages": [("user", question)]}, thread)["messages"][
                -1
            ].text
        )
    return dict(agent.get_state(thread).values["context_report"])


if __name__ == "__main__":
    from langchain_google_genai import ChatGoogleGenerativeAI

    print(
        run(
            ChatGoogleGenerativeAI(model="gemini-3.5-flash"),
            ["How many bolts are there?", "And how many nuts?"],
        )
    )
