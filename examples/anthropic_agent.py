"""A Claude agent with a rule that stays in every request, and a limit for what a thread may spend."""

from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ContextConfig, ThreadBudgetError, create_context_agent

CONFIG = ContextConfig(constraints="Never promise a refund.", max_thread_tokens=50_000)


def run(model: Any, questions: list[str], config: ContextConfig = CONFIG) -> list[str]:
    """Ask until the thread has spent what it may, and return the answers."""
    agent = create_context_agent(
        model,
        [],
        system_prompt="You help customers.",
        config=config,
        checkpointer=InMemorySaver(),
    )
    answers = []
    try:
        for question in questions:
            state = agent.invoke(
                {"messages": [("user", question)]}, {"configurable": {"thread_id": "1"}}
            )
            answers.append(state["messages"][-1].text)
    except ThreadBudgetError as error:
        print(error)
    return answers


if __name__ == "__main__":
    from langchain_anthropic import ChatAnthropic

    print(
        run(
            ChatAnthropic(model="claude-sonnet-4-5", max_tokens=1024),
            ["Where is my parcel?", "May I have my money back?"],
        )
    )
