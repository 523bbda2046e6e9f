"""What a newcomer tries first: does it work with only what the README tells to install?

Each attempt is a program of its own, run by an interpreter that finds no package of another extra than `agents`. The
examples, which need their providers' packages, run in `test_examples`.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_INSTALLED = (
    *("anthropic", "google", "langchain_anthropic", "langchain_google_genai"),
    *("langchain_openai", "openai", "opentelemetry", "quicktok", "redis"),
    *("watchfiles", "xllamacpp"),
)
DOUBLE = """
from langchain_ctxwin.testing import ScriptedChatModel
model = ScriptedChatModel(window=8192, max_tokens=1024, script="Fine.")
"""
REACT = """
from langgraph.prebuilt import create_react_agent
from langchain_ctxwin import ContextEngine, ContextNodes
nodes = ContextNodes(ContextEngine(limits=model), system_prompt="You are brief.")
agent = create_react_agent(model, [], pre_model_hook=nodes.pre_model_hook)
history = [("user", "word " * 300), ("ai", "Yes.")] * 60
assert agent.invoke({"messages": [*history, ("user", "Hi")]})["messages"][-1].text == "Fine."
"""
SERVICE = """
import asyncio
from langgraph.checkpoint.memory import InMemorySaver
from langchain_ctxwin import create_context_agent
agent = create_context_agent(model, [], checkpointer=InMemorySaver())
async def ask(thread):
    config = {"configurable": {"thread_id": str(thread)}}
    for number in range(3):
        answer = await agent.ainvoke({"messages": [("user", f"Question {number}")]}, config)
    return len(answer["messages"])
async def main():
    return await asyncio.gather(*map(ask, range(8)))
assert asyncio.run(main()) == [6] * 8
"""
CHAIN = """
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_ctxwin import BudgetedRetriever
found = [Document("A refund takes two weeks. " * 200) for _ in range(20)]
retriever = BudgetedRetriever(base=RunnableLambda(lambda query: found), max_context_tokens=4096)
joined = retriever | (lambda documents: "\\n".join(d.page_content for d in documents))
prompt = ChatPromptTemplate.from_template("{context}\\n\\n{question}")
chain = {"context": joined, "question": RunnablePassthrough()} | prompt | model
assert chain.invoke("How long does a refund take?").text == "Fine."
"""
ROUTER = """
from langchain_ctxwin import ModelRegistry, ModelRouter, RoutedChatModel, create_context_agent
assert ModelRegistry().lookup("gemini-3.5-flash").context_window > 100_000
large = ScriptedChatModel(model_name="large", window=32_768, max_tokens=512, script="Long.")
routed = RoutedChatModel(ModelRouter([model, large]))
assert routed.invoke("many words " * 9_000).text == "Long."
assert create_context_agent(routed, []).invoke({"messages": [("user", "Hi")]})["messages"][-1].text == "Fine."
"""


def page(name):
    """Return the blocks of a page that run, in order."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return "\n".join(
        re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    )


COMMAND = """
import json, sys
from pathlib import Path
from langchain_ctxwin.cli import main
turn = [{"role": "user", "content": "word " * 300}, {"role": "assistant", "content": "Yes."}]
Path("run.json").write_text(json.dumps({"messages": turn * 60}))
sys.argv = ["ctxwin", "replay", "run.json", "--window", "8192"]
if __name__ == "__main__":  # the command starts processes
    sys.exit(main())
"""
PROGRAMS = {
    "README from top to bottom": page("README.md"),
    "create_agent": page("docs/howto/middleware.md"),
    "a graph of one's own, and a team": page("docs/howto/nodes.md"),
    "create_react_agent": DOUBLE + REACT,
    "an async service": DOUBLE + SERVICE,
    "a retriever in a chain": DOUBLE + CHAIN,
    "a guard around tools": page("docs/howto/tool-results.md").partition(
        "from langchain_ctxwin.tool_results.stores"  # Redis is another extra
    )[0],
    "registry and router": DOUBLE + ROUTER,
    "the command": COMMAND,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_attempt_works(name, tmp_path):
    start = f"import sys\nsys.modules.update(dict.fromkeys({NOT_INSTALLED!r}))\n"
    (tmp_path / "program.py").write_text(start + PROGRAMS[name], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
