"""Does a browser show the page of a replay, without a complaint?"""

import json
import shutil
import subprocess
import time
from contextlib import contextmanager
from itertools import count

import httpx
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from websockets.sync.client import connect

from langchain_ctxwin.replay import Conversation, Policy, compare
from langchain_ctxwin.replay.page import page

pytestmark = pytest.mark.integration

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
    *_, results = compare([conversation()], [Policy.named(policy)], WINDOW, jobs=1)
    file = tmp_path / "page.html"
    file.write_text(page(conversation(), Policy.named(policy), WINDOW, results))
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
    assert shown.stdout.count("<polygon") == (4 if policy == "balanced" else 2)


class Tab:
    """A tab of a browser, driven by its own protocol."""

    def __init__(self, socket):
        self.socket, self.numbers, self.events = socket, count(1), []

    def do(self, method, **given):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": given}))
        while (answer := json.loads(self.socket.recv(timeout=20))).get("id") != number:
            self.events.append(answer)
        return answer["result"]

    def read(self, expression):
        return self.do("Runtime.evaluate", expression=expression, returnByValue=True)[
            "result"
        ].get("value")

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.do(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
            )


@contextmanager
def opened(folder, file):
    """Open a file in a browser of its own."""
    command = [
        BROWSER,
        *OPTIONS,
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}/b",
        "about:blank",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as browser:
        try:
            address = next(
                line for line in browser.stderr if "listening on" in line
            ).split()[-1]
            port = address.split(":")[2].partition("/")[0]
            tabs = httpx.get(f"http://127.0.0.1:{port}/json", trust_env=False).json()
            place = next(
                tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"
            )
            with connect(place, max_size=None, proxy=None) as socket:
                tab = Tab(socket)
                for domain in ("Runtime", "Log", "Page"):
                    tab.do(f"{domain}.enable")
                tab.do("Page.navigate", url=file.as_uri())
                end = time.monotonic() + 20
                while time.monotonic() < end and not tab.read(
                    "document.getElementById('now')?.textContent"
                ):
                    time.sleep(0.05)
                yield tab
        finally:
            browser.kill()


@pytest.mark.enable_socket
@pytest.mark.skipif(
    BROWSER is None, reason="no Chromium on this machine: apt install chromium"
)
def test_the_keyboard_walks_through_the_requests(tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page(conversation(), Policy.named("balanced"), WINDOW))
    now = "document.getElementById('now').textContent"
    with opened(tmp_path, file) as tab:
        assert tab.read(now).startswith("Request 1 of")
        assert tab.read("window.scrollY") == 0
        tab.press("ArrowRight", 39)
        assert tab.read(now).startswith("Request 2 of")
        tab.press("End", 35)
        assert tab.read(now).startswith(f"Request {2 * TURNS} of {2 * TURNS}")
        assert tab.read("document.querySelectorAll('.message.left').length") > TURNS
        tab.press("ArrowLeft", 37)
        assert tab.read(now).startswith(f"Request {2 * TURNS - 1} of")
        tab.press("Tab", 9)
        # to read one that is cut
        assert tab.read("document.activeElement.className").startswith("message")
        told = [event["method"] for event in tab.events]
        assert not {
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
        } & {*told}
