"""Two agents as tools of a third: each has its own window, and only answers pass between them."""

from typing import Any

from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import create_context_agent


def as_tool(name: str, description: str, agent: Any) -> BaseTool:
    """Return a tool that hands a task to an agent and returns its answer."""

    @tool(name, description=description)
    def delegate(task: str) -> str:
        return str(agent.invoke({"messages": [("user", task)]})["messages"][-1].text)

    return delegate


def run(supervisor: Any, researcher: Any, writer: Any, task: str) -> str:
    """Do a task with three models, which may be the same one."""
    tools = [
        as_tool(
            "research",
            "Find facts.",
            create_context_agent(researcher, [], system_prompt="You find facts."),
        ),
        as_tool(
            "write",
            "Write a text.",
            create_context_agent(writer, [], system_prompt="You write."),
        ),
    ]
    prompt = "Split the task: research first, then write. Answer with the text."
    agent = create_context_agent(
        supervisor, tools, system_prompt=prompt, checkpointer=InMemorySaver()
    )
    return str(
        agent.invoke(
            {"messages": [("user", task)]}, {"configurable": {"thread_id": "1"}}
        )["messages"][-1].text
    )


if __name__ == "__main__":
    from langchain_google_genai import ChatGoogleGenerativeAI

    gemini = ChatGoogleGenerativeAI(model="gemini-3.5-flash")
    print(run(gemini, gemini, gemini, "Three sentences about the harbour of Trieste."))
