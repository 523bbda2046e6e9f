"""Does a browser show the page of a replay, without a complaint?"""

import shutil
import subprocess

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin.replay import Policy
from langchain_ctxwin.replay.command import page
from langchain_ctxwin.replay.reading import Conversation

BROWSER = (
    shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu"]
WINDOW, TURNS = 2_000, 20


def conversation():
    messages = []
    for n in range(TURNS):
        call = {"name": "find", "args": {"n": n}, "id": f"c{n}"}
        messages += [
            HumanMessage(f"Question {n}? " + "river mill " * 20),
            AIMessage("", tool_calls=[call]),
        ]
        messages += [
            ToolMessage("boat " * 60, tool_call_id=f"c{n}"),
            AIMessage(f"Answer {n}."),
        ]
    named = tuple(
        message.model_copy(update={"id": f"m{i}"}) for i, message in enumerate(messages)
    )
    return Conversation(name="rivers", messages=named)


@pytest.mark.skipif(
    BROWSER is None, reason="no Chromium on this machine: apt install chromium"
)
@pytest.mark.parametrize("policy", ["balanced", "keep-last"])
def test_a_browser_shows_the_page(tmp_path, policy):
    file = tmp_path / "page.html"
    file.write_text(page(conversation(), Policy.named(policy), WINDOW))
    options = [
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path}/b",
        "--virtual-time-budget=2000",
    ]
    command = [BROWSER, *OPTIONS, *options, "--dump-dom", f"{file.as_uri()}#{TURNS}"]
    shown = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True
    )
    assert "CONSOLE" not in shown.stderr, shown.stderr[-2_000:]
    assert f'<h1 id="title">rivers under {policy}</h1>' in shown.stdout
    assert f"Request {TURNS} of {2 * TURNS}:" in shown.stdout
    assert "left before request" in shown.stdout
    # as many as it has regions
    assert shown.stdout.count("<polygon") == (4 if policy == "balanced" else 1)
