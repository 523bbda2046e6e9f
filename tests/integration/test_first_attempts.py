"""What a newcomer tries first: does it work with only what the README tells to install?

Each attempt is a program of its own, run by an interpreter that finds the package, what its extra `agents` requires,
and nothing else. The examples, which need their providers' packages, run in `test_examples`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
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


def page(name: str) -> str:
    """Return the blocks of a page that run, in order."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return "\n".join(
        re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    )


SUPERVISOR = """
from langchain_core.messages import AIMessage
calls = [{"name": "research", "args": {"task": "Trieste"}, "id": "1"}]
boss = ScriptedChatModel(window=8192, script=[AIMessage("", tool_calls=calls), "A port."])
assert run(boss, model, model, "About Trieste.") == "A port."
"""
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
    "a supervisor": (ROOT / "examples" / "supervisor.py")
    .read_text(encoding="utf-8")
    .partition("if __name__")[0]
    + DOUBLE
    + SUPERVISOR,
    "an async service": DOUBLE + SERVICE,
    "a retriever in a chain": DOUBLE + CHAIN,
    "a guard around tools": page("docs/howto/tool-results.md").partition(
        "from langchain_ctxwin.tool_results.stores"  # Redis is another extra
    )[0],
    "registry and router": DOUBLE + ROUTER,
    "the command": COMMAND,
}


def required(name: str, extra: str, seen: dict[tuple[str, str], Distribution]) -> None:
    """Add a distribution and what it requires with an extra to those that were seen."""
    if (name, extra) in seen:
        return
    seen[name, extra] = found = distribution(name)
    for text in found.requires or ():
        need = Requirement(text)
        if need.marker is None or need.marker.evaluate({"extra": extra}):
            for wanted in need.extras or {""}:
                required(need.name, wanted, seen)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package and what its extra `agents` requires, as links."""
    folder, seen = (
        tmp_path_factory.mktemp("site"),
        dict[tuple[str, str], Distribution](),
    )
    required("langchain-ctxwin", "agents", seen)
    for found in seen.values():
        for top in {file.parts[0] for file in found.files or ()} - {".."}:
            target, link = Path(str(found.locate_file(top))), folder / top
            if target.is_dir() and not top.endswith("-info"):
                _linked(found, top, folder)
            elif not link.exists():
                link.symlink_to(target)
    if not (folder / "langchain_ctxwin").exists():  # an editable install
        (folder / "langchain_ctxwin").symlink_to(ROOT / "langchain_ctxwin")
    return folder


def _linked(found: Distribution, top: str, folder: Path) -> None:
    """Link a package; the parts of one that several distributions share, each by itself."""
    here = Path(str(found.locate_file(top)))
    if (here / "__init__.py").exists():
        if not (folder / top).exists():
            (folder / top).symlink_to(here)
        return
    parts = {file.parts[1] for file in found.files or () if file.parts[0] == top}
    (folder / top).mkdir(exist_ok=True)
    for part in parts:
        if not (folder / top / part).exists():
            (folder / top / part).symlink_to(here / part)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_attempt_works(name: str, site: Path, tmp_path: Path) -> None:
    done = ran(PROGRAMS[name], site, tmp_path)
    assert done.returncode == 0, done.stderr[-2_000:]


def test_what_the_install_lacks_is_not_found(site: Path, tmp_path: Path) -> None:
    done = ran("import watchfiles", site, tmp_path)
    assert "No module named 'watchfiles'" in done.stderr


def ran(program: str, site: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that finds the site and Python's own modules only."""
    start = f"import sys; sys.path.append({str(site)!r})\n"
    (folder / "program.py").write_text(start + program, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-S", "-I", "program.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
