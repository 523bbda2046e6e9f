"""A local model: Ollama cuts what is longer than `num_ctx` without a word, so the window is said and kept."""

from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ModelLimits, create_context_agent

NUM_CTX = 8_192
NUM_PREDICT = 512  # tokens of an answer, which Ollama takes from the same window


def run(model: Any, notes: list[str], num_ctx: int = NUM_CTX) -> dict[str, Any]:
    """Tell the agent all notes in one thread, and return its state."""
    limits = ModelLimits(context_window=num_ctx, requested_output_tokens=NUM_PREDICT)
    agent = create_context_agent(model, [], limits=limits, checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    for note in notes:
        agent.invoke({"messages": [("user", note)]}, thread)
    return dict(agent.get_state(thread).values)


if __name__ == "__main__":
    from langchain_ollama import ChatOllama

    local = ChatOllama(model="qwen3", num_ctx=NUM_CTX, num_predict=NUM_PREDICT)
    state = run(
        local, [f"Note {number}: " + "we build boats. " * 100 for number in range(20)]
    )
    print(state["messages"][-1].text)
    print(state["context_report"])
