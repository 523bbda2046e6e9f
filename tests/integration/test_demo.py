"""Does the demo prove what it says, and does it notice when a question, a result or a rule is lost?"""

import json
import re
from io import StringIO
from pathlib import Path

import langchain_core
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin import CursorTamperedError, ToolResultGuard, classify_overflow
from langchain_ctxwin.cli import main
from langchain_ctxwin.demo import big_results, choice, decompose, explore
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.offline_model import (
    PATTERNS,
    Move,
    OfflineChatModel,
    RequestTooLargeError,
    look,
    request_tokens,
    understand,
)
from langchain_ctxwin.demo.story import RULE, RULE_WORD, Recorder, Screen, bar
from langchain_ctxwin.demo.tools import FolderTools

pytestmark = pytest.mark.integration

WINDOW = 8192
OFFLINE = {"context_window": WINDOW, "max_tokens": 1024}


@pytest.fixture
def library(tmp_path):
    """A folder with long and short files, one endless line, a binary, broken text, links and a secret."""
    place = tmp_path / "library"
    (place / "deep").mkdir(parents=True)
    for number in range(6):
        lines = [f"chapter {number} verse {i} " + "lorem ipsum " * (i % 7) for i in range(150 + 300 * number)]
        (place / "deep" / f"book{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    (place / "endless.json").write_text("[" + "12345, " * 60_000 + "0]", encoding="utf-8")
    (place / "latin.txt").write_bytes(b"caf\xe9 na\xefve\r\n" * 400)
    (place / "[bold]x.txt").write_text("[red]markup :smile: \x1b[31m\u2028\x85\n" * 500, encoding="utf-8")
    (place / "image.bin").write_bytes(b"\0\1\2" * 5_000)
    (place / ".env").write_text("SECRET=1", encoding="utf-8")
    (tmp_path / "outside.txt").write_text("not for you", encoding="utf-8")
    (place / "link.txt").symlink_to(tmp_path / "outside.txt")
    (place / "loop").symlink_to(place)
    return place


@pytest.fixture
def tools(library):
    """The tools of the library, by name."""
    return {tool.name: tool for tool in FolderTools(Folder.open(library)).tools()}


def _failed(claims):
    return [claim.text for claim in claims if claim.holds is False]


class LossyModel(OfflineChatModel):
    """Sees its input through a filter: what a broken assembler would leave of it."""

    lose: object = None

    def _answer(self, messages, tools=()):
        return super()._answer(self.lose(list(messages)), tools)


def _with_texts(kind, text_of):
    """A filter that changes the text of messages of one kind."""

    def changed(messages):
        return [
            message.model_copy(update={"content": text_of(message)}) if isinstance(message, kind) else message
            for message in messages
        ]

    return changed


def _garbled_data(message):
    before, mark, data = message.text.partition("<data ")
    return before + mark + re.sub(r"\d+(?=\n|\}|,)", "7", data.partition("</data ")[0]) + "</data "


TRUTH, KEPT_RULE = "every answer is true", "the rule of the first message is kept"


def test_the_default_run_plays_every_story_and_every_claim_holds(capsys):
    """The work outgrows the window many times, in turns of many steps and parallel calls, and exits with 0."""
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert ("FAILED" in out, "WRONG" in out, "\x1b" in out) == (False, False, False)
    steps = [len(re.findall(r"^ +\d+ [a-z.]{20,} ", turn, re.MULTILINE)) for turn in out.split("\nTurn ")[1:]]
    assert max(steps) > 10
    assert " 4 x search(" in out
    titles = [f"\n{title}: " for title in ("Long work", "Large results", "Choices", "Any size")]
    assert sorted(titles, key=out.index) == titles
    assert len(re.findall(r"~ compacted [\d,]+ -> [\d,]+ tokens: .*\(.+\)", out)) > 5
    assert out.count("verified, rule kept") == out.count("\nTurn ") > 20
    assert re.search(r"each request fits the model it went to +offline-small \d+, then offline-large \d+", out)
    sent, whole = (int(re.search(rf"{name} +([\d,]+)", out)[1].replace(",", "")) for name in ("in all", "each time"))
    assert whole > 5 * sent


@pytest.mark.parametrize(("window", "seed"), [(2048, 1), (16384, 2)])
def test_every_story_holds_in_other_windows_and_on_other_questions(library, window, seed, capsys):
    arguments = ["demo", str(library), "--window", str(window), "--steps", "20", "--seed", str(seed)]
    assert main(arguments) == 0
    assert "WRONG" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lose", "failures"),
    [
        (lambda messages: [m for m in messages if not isinstance(m, HumanMessage)], [TRUTH, KEPT_RULE]),
        (_with_texts(HumanMessage, lambda m: m.text.replace(RULE[:20], "").replace(RULE[20:], "")), [KEPT_RULE]),
        (_with_texts(ToolMessage, lambda _: "[Tool result cleared: 12 characters; still in the history.]"), [TRUTH]),
        (_with_texts(ToolMessage, lambda m: re.sub(r"\d", "7", m.text)), [TRUTH]),
        (_with_texts(AIMessage, lambda m: "" if m.tool_calls else m.text), [TRUTH]),
        (lambda messages: [m for m in messages if not isinstance(m, ToolMessage)], [TRUTH]),
    ],
)
def test_what_a_model_cannot_see_fails_visibly(library, lose, failures, capsys):
    """A lost question, rule, result or note, and garbled results, break a claim."""
    screen = Screen.standard()
    model = LossyModel(**OFFLINE, lose=lose)
    claims = explore.play(screen, Folder.open(library), window_tokens=WINDOW, steps=20, model=model)
    assert _failed(claims) == failures
    assert screen.claims(claims) is False
    assert capsys.readouterr().out.count("FAILED") == len(failures)


def test_a_reader_that_sees_wrong_pages_fails_its_story():
    lose = _with_texts(ToolMessage, _garbled_data)

    class LossyReader(big_results.ReaderModel, LossyModel):
        pass

    claims = big_results.play(
        Screen.standard(), window_tokens=WINDOW, rows=300, model=LossyReader(**OFFLINE, lose=lose)
    )
    assert _failed(claims) == [TRUTH]


def test_a_smaller_true_window_is_recovered_from_and_counted(library, capsys):
    """The provider refuses what the package thought would fit; the run goes on and says so."""
    model = OfflineChatModel(context_window=5000, max_tokens=1024)
    claims = explore.play(Screen.standard(), Folder.open(library), window_tokens=WINDOW, steps=30, model=model)
    assert _failed(claims) == []
    assert re.search("[1-9] refused, sent again smaller", claims[0].figure)
    assert "the provider refused the request" in capsys.readouterr().out


def test_an_orphan_and_a_request_without_its_question_are_noticed():
    recorder = Recorder()
    recorder.question = "Where?"
    messages = [HumanMessage("Where ?"), ToolMessage("lost", tool_call_id="x")]
    OfflineChatModel(**OFFLINE).invoke(messages, {"callbacks": [recorder]})
    assert (recorder.faults, recorder.without_question) == (["tool result 'x' answers no call"], 1)
    assert recorder.sizes == [request_tokens(messages)]


def test_a_dear_model_that_answers_first_fails_its_story(library, monkeypatch):
    monkeypatch.setattr(choice, "PRICES", {"offline-small": "10", "offline-large": "1"})
    claims = choice.play(Screen.standard(), Folder.open(library), window_tokens=WINDOW, larger_tokens=2 * WINDOW)
    assert _failed(claims) == ["each request fits the model it went to"]


@pytest.mark.parametrize("term", decompose.TERMS)
def test_what_stands_around_the_parts_is_not_counted(library, monkeypatch, term):
    (library / "marks.txt").write_text("<document from='a'>\nthe import with a return\n</document>\n" * 90)
    monkeypatch.setattr(decompose, "TERMS", (term,))
    assert _failed(decompose.play(Screen.standard(), Folder.open(library), window_tokens=2048)) == []


def test_a_wrong_count_of_the_parts_fails_its_story(library, monkeypatch):
    monkeypatch.setattr(decompose.CountingModel, "_next_move", lambda *_: Move(f"1 {decompose.ANSWER}"))
    claims = decompose.play(Screen.standard(), Folder.open(library), window_tokens=WINDOW)
    assert _failed(claims) == ["the answer is true"]


@pytest.mark.parametrize(
    "path", ["../outside.txt", "/etc/passwd", "deep/../../outside.txt", "link.txt", "loop/../../x"]
)
@pytest.mark.parametrize("name", ["read_file", "search", "list_files"])
def test_nothing_outside_the_folder_can_be_reached(tools, name, path):
    """Dots, absolute paths and links that lead out are refused as a tool error."""
    args = {"folder": path} if name == "list_files" else {"path": path} | ({"pattern": "."} if name == "search" else {})
    message = _call(tools, name, **args)
    assert (message.status, "out of the folder" in message.text) == ("error", True)


def _call(tools, name, **args):
    """The message that the agent's tool node would add."""
    return tools[name].invoke({"type": "tool_call", "name": name, "id": "1", "args": args})


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("read_file", {"path": ".env"}, "no file"),
        ("read_file", {"path": "image.bin"}, "binary"),
        ("read_file", {"path": "nothing.txt"}, "no file"),
        ("read_file", {"path": "a\0b"}, "no path"),
        ("search", {"pattern": "("}, "no regular expression"),
        ("search", {"pattern": "x" * 300}, "300 characters"),
        ("search", {"pattern": ""}, "0 characters"),
        ("list_files", {"folder": "nowhere"}, "nothing at"),
        ("list_files", {"order": "color"}, "validation"),
    ],
)
def test_what_a_tool_refuses_is_a_tool_error_with_a_reason(tools, name, args, reason):
    """The model can read why and go on."""
    message = _call(tools, name, **args)
    assert (message.status, reason in message.text.lower()) == ("error", True)


def test_results_say_what_they_cover(tools):
    """The last line of each result holds its totals, long lines of a range are cut, bad bytes are readable."""
    assert _call(tools, "list_files", order="size", limit=1).text.split("\n")[1] == "[1 of 10 files]"
    assert (
        _call(tools, "read_file", path="latin.txt", last_line=1).text == "1: caf\ufffd na\ufffdve\n[lines 1-1 of 400]"
    )
    assert len(_call(tools, "read_file", path="endless.json", last_line=1).text) < 500
    assert _call(tools, "search", pattern="caf", path="latin.txt").text.endswith("[400 lines in 1 files, 150 shown]")


def test_a_folder_lists_what_may_be_read(library):
    """Hidden files and links are left out; a binary is listed, but is no text."""
    folder = Folder.open(library)
    names = {file.path for file in folder.files}
    assert {"image.bin", "endless.json", "deep/book0.txt", "[bold]x.txt"} <= names
    assert names.isdisjoint({".env", "link.txt", "loop/endless.json"})
    assert "image.bin" not in {file.path for file in folder.texts}


def test_every_question_is_understood_as_it_was_asked():
    """What the model reads back is what was filled in, so it finds the answer that plain code found."""
    interview = explore.Interview(Folder.open(Path(langchain_core.__file__).parent), window_tokens=WINDOW)
    questions = interview.questions()
    asked = [interview.opening, *(next(questions) for _ in range(9)), interview.closing]
    kinds = [understand(question, PATTERNS)[0] for question, _ in asked]
    assert kinds == ["largest", *["whole", "tour", "compare"] * 3, "recall"]


def test_the_model_refuses_what_exceeds_its_window_in_the_words_of_a_provider():
    """The refusal is recognised, with the limit, the size and the output that was asked for."""
    with pytest.raises(RequestTooLargeError) as refusal:
        OfflineChatModel(context_window=100, max_tokens=50).invoke("word " * 200)
    overflow = classify_overflow(refusal.value)
    tokens = request_tokens([HumanMessage("word " * 200)])
    assert (overflow.limit, overflow.actual, overflow.requested_output) == (100, tokens + 50, 50)


def test_the_model_reads_only_what_it_is_given(tools):
    """Question, rule, note and results come from the messages, whatever came before; a note of an editor is none."""
    messages = [
        HumanMessage(f"{RULE} first?"),
        AIMessage(f"yes\n{RULE_WORD}"),
        HumanMessage("second?"),
        HumanMessage("[Continue.]"),
        AIMessage('so far\nNote to myself: {"at": 5}', tool_calls=[{"name": "list_files", "args": {}, "id": "1"}]),
        ToolMessage("1 a\n[1 of 3 files]", tool_call_id="1"),
    ]
    sight = look(messages)
    assert (sight.question, sight.rule_word, sight.note, sight.first_answer) == ("second?", RULE_WORD, {"at": 5}, "yes")
    assert [result.totals for result in sight.results] == [[1, 3]]
    used, fresh = (OfflineChatModel(**OFFLINE).bind_tools(list(tools.values())) for _ in range(2))
    used.invoke("Which of these files has the most lines with `a`: `b, c`?")
    question = "Read all of `latin.txt`. How many lines does it have, and what does line 1 say?"
    calls = [model.invoke(question).tool_calls for model in (used, fresh)]
    assert calls[0] == calls[1]
    assert calls[0][0]["args"] == {"path": "latin.txt"}


def test_a_tool_that_is_not_shown_is_searched_for_once():
    """A model calls only what its request shows."""
    model = OfflineChatModel(**OFFLINE)
    question = HumanMessage("Read all of `a`. How many lines does it have, and what does line 1 say?")
    shown = [{"type": "function", "function": {"name": name}} for name in ("search_tools", "search")]
    searched = model.bind(tools=shown).invoke([question])
    assert [(call["name"], call["args"]) for call in searched.tool_calls] == [("search_tools", {"query": "read_file"})]
    found = ToolMessage("- read_file", name="search_tools", tool_call_id=searched.tool_calls[0]["id"])
    assert model.bind(tools=shown).invoke([question, searched, found]).text == "I cannot see the tool read_file."
    assert model.bind(tools=shown[1:]).invoke([question]).text == "I cannot see the tool read_file."


def test_the_changed_cursor_is_well_formed_and_refused():
    """It is refused for its tag, not for its form."""
    guard = ToolResultGuard()
    rows = [{"id": n, "text": f"word {n * n} " * 9} for n in range(600)]
    page = guard.output(json.dumps(rows), "fetch_rows", {})
    cursor = big_results.newest_cursor([ToolMessage(page, name="fetch_rows", tool_call_id="1")])
    assert guard.read(cursor)
    with pytest.raises(CursorTamperedError, match="was changed, or belongs to another"):
        guard.read(big_results.changed(cursor))


@given(text=st.lists(st.sampled_from([*"[]/\\x \n", "red", "\x1b", "\u202e", ":smile:"]), max_size=60).map("".join))
def test_text_of_files_cannot_change_the_screen(text):
    """Markup and control characters are printed, not obeyed."""
    written = StringIO()
    _screen(written).line(("Turn 1", "bold"), (f"  {text}", ""))
    shown = re.sub("[\n\x1b\u202e]", " ", f"  {text}")
    assert written.getvalue() == f"Turn 1{shown[:240]}\n"


def _screen(written, **options):
    from rich.console import Console

    return Screen(console=Console(file=written, width=200, highlight=False, emoji=False, **options))


@given(
    sizes=st.lists(st.integers(0, 5_000), min_size=7, max_size=7),
    limit=st.integers(0, 30_000),
    width=st.integers(1, 80),
)
def test_a_gauge_fills_its_width_whatever_the_sizes(sizes, limit, width):
    keys = (
        "system_tokens",
        "tool_tokens",
        "summary_tokens",
        "record_tokens",
        "pinned_tokens",
        "history_tokens",
        "reserved_tokens",
    )
    report = dict(zip(keys, sizes, strict=True)) | {"input_limit": limit, "total_tokens": sum(sizes[:6])}
    cells = sum(len(text) for text, _ in bar(report, width, is_plain=True))
    assert cells == (width if sum(sizes) + limit else 0)


def test_a_terminal_gets_colors(library):
    written = StringIO()
    explore.play(_screen(written, force_terminal=True), Folder.open(library), window_tokens=WINDOW, steps=3)
    assert "\x1b[32m\u2588" in written.getvalue()
