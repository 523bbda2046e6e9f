"""Does the demo prove what it says, and does it notice when a question, a result or a rule is lost?"""

import json
import re
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin import ModelLimits, classify_overflow
from langchain_ctxwin.cli import main
from langchain_ctxwin.demo import phrases, ruler
from langchain_ctxwin.demo.big_results import BigResults
from langchain_ctxwin.demo.checks import keeps_rule, verify
from langchain_ctxwin.demo.explore import Scene, build_agent
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.gauge import cells
from langchain_ctxwin.demo.offline_model import OfflineChatModel, RequestTooLargeError
from langchain_ctxwin.demo.payload import Payload
from langchain_ctxwin.demo.questions import KINDS, Interview
from langchain_ctxwin.demo.reader_model import ReaderModel
from langchain_ctxwin.demo.result_screen import ResultScreen
from langchain_ctxwin.demo.screen import Screen
from langchain_ctxwin.demo.sight import digest, look, read_facts
from langchain_ctxwin.demo.tools import FolderTools

pytestmark = pytest.mark.integration

WINDOW = 8192
RULE = phrases.RULE.format(word="heron")


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


def _call(tools, name, **args):
    """The message that the agent's tool node would add."""
    return tools[name].invoke({"type": "tool_call", "name": name, "id": "1", "args": args})


def _scene(folder, model=None):
    """A scene of strict checks, on another model if one is given."""
    opened = Folder.open(folder)
    scene = Scene.set_up(opened, window_tokens=WINDOW)
    if model is None:
        return scene
    limits = ModelLimits(WINDOW, max_output_tokens=1024)
    graph = build_agent(model, FolderTools(opened).tools(), limits)
    return replace(scene, conversation=replace(scene.conversation, graph=graph))


class LossyModel(OfflineChatModel):
    """Sees its input through a filter: what a broken assembler would leave of it."""

    lose: object = None

    def _answer(self, messages, **options):
        return super()._answer(self.lose(list(messages)), **options)


def _without_question(messages):
    return [message for message in messages if not isinstance(message, HumanMessage)]


def _without_rule(messages):
    return [
        HumanMessage(message.text.replace(RULE[:20], "")) if isinstance(message, HumanMessage) else message
        for message in messages
    ]


def _garbled_question(messages):
    asked = max(i for i, message in enumerate(messages) if isinstance(message, HumanMessage))
    return [*messages[:asked], HumanMessage(messages[asked].text + " "), *messages[asked + 1 :]]


def _cleared_results(messages):
    stub = "[Tool result cleared: 12 characters; still in the history as message x.]"
    return [
        message.model_copy(update={"content": stub}) if isinstance(message, ToolMessage) else message
        for message in messages
    ]


def _garbled_results(messages):
    return [
        message.model_copy(update={"content": re.sub(r"\d", "7", message.text)})
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]


def _without_notes(messages):
    return [
        message.model_copy(update={"content": ""}) if isinstance(message, AIMessage) and message.tool_calls else message
        for message in messages
    ]


def test_the_conversation_outgrows_the_window_many_times_and_every_check_holds(library):
    """Every request fits, nothing is orphaned, and every answer agrees with the files."""
    ledger = _scene(library).play(Screen.standard(), steps=60)
    assert ledger.failures == []
    assert (ledger.orphans, ledger.steps >= 60, len(ledger.verdicts) >= 8) == ([], True, True)
    assert ledger.largest_tokens <= ledger.input_limit == 7168
    assert ledger.history_tokens > 5 * WINDOW
    assert ledger.largest_result_tokens > WINDOW
    assert ledger.unmanaged_tokens > 5 * ledger.sent_tokens
    assert 0 < ledger.unmanaged_failure < 20
    assert ledger.events["force"] > 0
    assert sum(ledger.events.values()) >= 5


def test_the_default_run_explores_the_source_of_langchain_core(capsys):
    """A folder of several megabytes, all kinds of questions, some turns of more than ten steps, parallel calls."""
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    steps = [len(re.findall(r"^ +\d+ [a-z.]{20,} ", turn, re.MULTILINE)) for turn in out.split("\nTurn ")[1:]]
    assert max(steps) > 10
    assert " 4 x search(" in out or " 3 x search(" in out
    assert out.count("verified against the files, rule kept") == len(steps)


@pytest.mark.parametrize("window", [2048, 4096, 16384])
def test_other_windows_hold_as_well(library, window, capsys):
    """Pages and the reserve follow the window."""
    assert main(["demo", str(library), "--window", str(window), "--steps", "30"]) == 0
    assert "WRONG" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lose", "failure"),
    [
        (_without_question, "answers are wrong"),
        (_garbled_question, "answers are wrong"),
        (_cleared_results, "answers are wrong"),
        (_garbled_results, "answers are wrong"),
        (_without_notes, "answers are wrong"),
        (_without_rule, "answers break the rule"),
    ],
)
def test_what_a_model_cannot_see_fails_visibly(library, lose, failure, capsys):
    """A lost or garbled question, result, note or rule is reported by the checks."""
    model = LossyModel(context_window=WINDOW, max_tokens=1024, lose=lose)
    screen = Screen.standard()
    ledger = _scene(library, model).play(screen, steps=30)
    screen.finished(ledger)
    assert any(failure in text for text in ledger.failures)
    assert "FAILED" in capsys.readouterr().out


def test_a_smaller_true_window_is_recovered_from_and_counted(library, capsys):
    """The provider refuses what the package thought would fit; the run goes on and says so."""
    model = OfflineChatModel(context_window=5000, max_tokens=1024)
    screen = Screen.standard()
    ledger = _scene(library, model).play(screen, steps=30)
    screen.finished(ledger)
    assert (ledger.failures, len(ledger.refused) > 0) == ([], True)
    assert ledger.events["context.overflow_recovered"] == len(ledger.refused)
    out = capsys.readouterr().out
    assert "the provider refused" in out
    assert "Every request fit, or was refused and sent again smaller, nothing was orphaned" in out


@pytest.mark.parametrize(
    "path", ["../outside.txt", "/etc/passwd", "deep/../../outside.txt", "link.txt", "loop/../../x"]
)
@pytest.mark.parametrize("name", ["read_file", "search", "list_files"])
def test_nothing_outside_the_folder_can_be_reached(tools, name, path):
    """Dots, absolute paths and links that lead out are refused as a tool error."""
    args = {"folder": path} if name == "list_files" else {"path": path} | ({"pattern": "."} if name == "search" else {})
    message = _call(tools, name, **args)
    assert (message.status, "out of the folder" in message.text) == ("error", True)


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


def test_every_question_is_understood_as_it_was_asked(library):
    """What the offline model reads back is what was filled in."""
    questions = Interview(Folder.open(library), window_tokens=WINDOW).questions()
    asked = [next(questions) for _ in range(3 * len(KINDS))]
    assert {question.kind for question in asked} == set(KINDS)
    assert [phrases.WORDING.understand(question.text) for question in asked] == [(q.kind, q.fields) for q in asked]


def test_the_model_refuses_what_exceeds_its_window_in_the_words_of_a_provider():
    """The refusal is recognised, with the limit, the size and the output that was asked for."""
    model = OfflineChatModel(context_window=100, max_tokens=50)
    with pytest.raises(RequestTooLargeError) as refusal:
        model.invoke("word " * 200)
    overflow = classify_overflow(refusal.value)
    tokens = ruler.request_tokens([HumanMessage("word " * 200)])
    assert (overflow.limit, overflow.actual, overflow.requested_output) == (100, tokens + 50, 50)


async def test_sync_async_and_streams_give_the_same_answer(tools):
    """Text, calls and usage agree, whichever way the model is called."""
    model = OfflineChatModel(context_window=WINDOW, max_tokens=1024).bind_tools(list(tools.values()))
    request = [SystemMessage("Explore."), HumanMessage(f"{RULE} {phrases.WORDING.ask('survey', {})}")]
    whole = model.invoke(request)
    streamed = None
    async for chunk in model.astream(request):
        streamed = chunk if streamed is None else streamed + chunk
    for other in (await model.ainvoke(request), streamed):
        assert (other.text, other.tool_calls, other.usage_metadata) == (
            whole.text,
            whole.tool_calls,
            whole.usage_metadata,
        )
    assert whole.tool_calls[0]["name"] == "list_files"


def test_the_model_reads_only_what_it_is_given():
    """Question, rule, note and results come from the messages; a note of an editor is no question."""
    call = {"name": "list_files", "args": {}, "id": "1"}
    messages = [
        HumanMessage(f"{RULE} first?"),
        AIMessage('yes\nEvidence: {"files": 3}\nheron'),
        HumanMessage("second?"),
        HumanMessage("[Continue.]"),
        AIMessage("so far [note at=5 hits=2]", tool_calls=[call]),
        ToolMessage("1 a\n[1 of 3 files]", tool_call_id="1"),
    ]
    sight = look(messages)
    assert (sight.question, sight.rule_word, sight.note) == ("second?", "heron", {"at": "5", "hits": "2"})
    assert (sight.first_answer, [result.text for result in sight.results]) == ({"files": 3}, ["1 a\n[1 of 3 files]"])


def test_the_same_request_gets_the_same_answer_whatever_came_before(tools):
    """The model keeps nothing between calls."""
    request = [HumanMessage(phrases.WORDING.ask("survey", {}))]
    fresh = OfflineChatModel(context_window=WINDOW, max_tokens=1024)
    used = OfflineChatModel(context_window=WINDOW, max_tokens=1024)
    used.invoke([HumanMessage(f"{RULE} {phrases.WORDING.ask('locate', {'term': 'x'})}")])
    assert used.invoke(request).tool_calls == fresh.invoke(request).tool_calls


def test_a_wrong_fact_is_noticed(library):
    """One wrong number or a missing fingerprint makes an answer wrong."""
    folder = Folder.open(library)
    question = Interview(folder, window_tokens=WINDOW).closing()
    right = {"question": digest(question.text), "files": 10, "largest": "endless.json", "bytes": 420_003}
    answers = [right, right | {"files": 11}, right | {"question": "?"}, {}, right | {"more": 1}]
    verdicts = [verify(f"x\nEvidence: {json.dumps(a)}\nheron", question, folder, rule_word="heron") for a in answers]
    assert [verdict.is_true for verdict in verdicts] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("answer", "kept"),
    [("a\nheron", True), ("a\n**heron**\n", True), ("a heron", False), ("heron\na", False), ("", False)],
)
def test_the_rule_is_kept_only_on_a_line_of_its_own_at_the_end(answer, kept):
    """Emphasis is fine, anything behind the word is not."""
    assert keeps_rule(answer, "heron") is kept


def test_evidence_that_is_no_json_states_nothing():
    """A garbled line of evidence fails the check, not the program."""
    assert [read_facts(text) for text in ("", "Evidence: {", "Evidence: [1]", 'Evidence: {"a": 1}')] == [
        {},
        {},
        {},
        {"a": 1},
    ]


@given(text=st.lists(st.sampled_from([*"[]/\\x \n", "red", "\x1b", "\u202e", ":smile:"]), max_size=60).map("".join))
def test_text_of_files_cannot_change_the_screen(text):
    """Markup and control characters are printed, not obeyed."""
    from rich.console import Console

    written = StringIO()
    screen = Screen(console=Console(file=written, width=200, highlight=False, emoji=False))
    screen.asked(1, text)
    shown = re.sub("[\n\x1b\u202e]", " ", f"  {text}")
    assert written.getvalue() == f"\nTurn 1{shown[:240]}\n"


@given(
    sizes=st.lists(st.integers(0, 5_000), min_size=6, max_size=6),
    limit=st.integers(0, 30_000),
    width=st.integers(1, 80),
)
def test_a_gauge_fills_its_width_whatever_the_sizes(sizes, limit, width):
    """The cells of the regions add up to the width, none is negative."""
    keys = ("system_tokens", "tool_tokens", "summary_tokens", "pinned_tokens", "history_tokens", "reserved_tokens")
    report = dict(zip(keys, sizes, strict=True)) | {"input_limit": limit, "total_tokens": sum(sizes[:5])}
    shares = cells(report, width)
    assert min(shares.values()) >= 0
    assert sum(shares.values()) in (0, width)
    assert sum(shares.values()) == width or sum(sizes) + limit == 0


def test_counting_by_pieces_stays_near_a_real_vocabulary():
    """Without the extra the model counts by a plain rule that is not far off."""
    text = "def search(self, pattern: str) -> list[int]:\n    return [1234, 56]  # What was found, and where?\n" * 20
    assert 0.7 < ruler.by_pieces(text) / ruler.text_tokens(text) < 1.5


def test_without_an_exact_tokenizer_the_demo_holds(library, monkeypatch):
    """The plain rule counts differently, and the package still keeps every request within the limit."""
    monkeypatch.setattr(ruler, "_counter", lambda: ruler.by_pieces)
    ruler.text_tokens.cache_clear()
    try:
        assert _scene(library).play(Screen.standard(), steps=30).failures == []
    finally:
        ruler.text_tokens.cache_clear()


def test_the_printed_graph_is_the_graph(library, capsys):
    """The opening lines name the nodes that run."""
    main(["demo", str(library), "--steps", "1"])
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Graph"))
    nodes = set(_scene(library).conversation.graph.get_graph().nodes) - {"__start__", "__end__"}
    assert set(re.findall(r"[a-z_]+", line.removeprefix("Graph"))) == nodes


def test_a_terminal_gets_colors_and_a_gauge_that_stays(library):
    """The gauge of the current request is kept at the bottom and removed at the end."""
    from rich.console import Console

    written = StringIO()
    screen = Screen(console=Console(file=written, force_terminal=True, width=80, highlight=False, emoji=False))
    with screen.opened("hello"):
        _scene(library).play(screen, steps=6)
        assert screen.live is not None
    assert screen.live is None
    assert "now:" in written.getvalue()
    assert "\x1b[32m\u2588" in written.getvalue()


def test_an_orphan_or_an_oversized_request_fails_the_run(library):
    """The recorder checks each request as it goes out, and the ledger names what is wrong."""
    scene = _scene(library)
    model = OfflineChatModel(context_window=10 * WINDOW, max_tokens=1024)
    orphan = [HumanMessage("word " * WINDOW), ToolMessage("lost", tool_call_id="x")]
    model.invoke(orphan, {"callbacks": [scene.conversation.recorder]})
    assert scene.ledger.orphans == ["tool result 'x' answers no call"]
    assert [text.partition(" ")[2][:12] for text in scene.ledger.failures] == ["request of 8", "orphaned cal"]


def test_a_real_model_is_not_judged_by_facts(library, capsys, monkeypatch):
    """The same tools and questions; answers are reported, the exit code depends on the requests alone."""
    model = OfflineChatModel(context_window=WINDOW, max_tokens=1024)
    monkeypatch.setattr("langchain.chat_models.init_chat_model", lambda name: model)
    assert main(["demo", str(library), "--model", "some:model", "--steps", "5"]) == 0
    out = capsys.readouterr().out
    assert "some:model explores" in out
    assert "facts not checked, rule kept" in out
    assert "not checked (not the offline model)" in out


class BrokenModel(OfflineChatModel):
    """A provider that is down."""

    def _answer(self, messages, **options):
        raise ConnectionError("no route\nto host")


def test_a_real_model_that_fails_ends_the_run_in_one_line(library, capsys, monkeypatch):
    """What a provider raises is named with its first line, without a traceback."""
    model = BrokenModel(context_window=WINDOW, max_tokens=1024)
    monkeypatch.setattr("langchain.chat_models.init_chat_model", lambda name: model)
    assert main(["demo", str(library), "--model", "some:model"]) == 1
    assert capsys.readouterr().err == "ctxwin: the model failed: ConnectionError: no route\n"


def test_a_fault_of_our_own_is_not_hidden(library, monkeypatch):
    """With the offline model an unexpected error is a bug and leaves as it is."""
    monkeypatch.setattr(OfflineChatModel, "_answer", BrokenModel._answer)
    with pytest.raises(ConnectionError):
        main(["demo", str(library)])


def test_half_a_million_tokens_are_answered_from_through_a_small_window(capsys):
    """Every answer agrees with the payload, of which the agent saw a few percent; a changed cursor is one sentence."""
    assert main(["demo", "--big-results"]) == 0
    out = capsys.readouterr().out
    payload_tokens = int(re.search(r"the payload +([\d,]+) tokens", out)[1].replace(",", ""))
    shown_tokens = int(re.search(r"shown of all results together +([\d,]+)", out)[1].replace(",", ""))
    assert (payload_tokens > 490_000, shown_tokens < payload_tokens / 10) == (True, True)
    assert out.count("verified against the payload, rule kept") == out.count("\nTurn ") == 7
    assert "was changed, or belongs to another call" in out


@pytest.mark.parametrize("window", [4096, 16384])
def test_questions_about_rows_of_a_file_are_answered_in_other_windows(tmp_path, window, capsys):
    """The questions come from the rows, whatever they are."""
    rows = [
        {"name": f"Station {n}", "kind": ["rail", "bus", "ferry"][n % 3], "open": n % 2 == 0, "height_m": n * 7 % 913}
        for n in range(1_200)
    ]
    path = tmp_path / "stations.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    assert main(["demo", "--data", str(path), "--window", str(window)]) == 0
    out = capsys.readouterr().out
    assert ("stations.json: 1,200 rows" in out, "WRONG" in out) == (True, False)


class LossyReader(ReaderModel):
    """Reads results whose data has other digits."""

    def _answer(self, messages, **options):
        return super()._answer(list(map(_garbled_data, messages)), **options)


def _garbled_data(message):
    before, mark, data = message.text.partition("<data ")
    data, end, after = data.partition("</data ")
    if not isinstance(message, ToolMessage) or not end:
        return message
    name, line_break, data = data.partition("\n")
    garbled = "".join([before, mark, name, line_break, re.sub(r"\d", "7", data), end, after])
    return message.model_copy(update={"content": garbled})


def test_a_reader_that_sees_wrong_pages_fails_the_run(monkeypatch, capsys):
    """Answers come from what the pages show: garbled pages give wrong answers, which are reported."""
    monkeypatch.setattr("langchain_ctxwin.demo.big_results.ReaderModel", LossyReader)
    scene = BigResults.set_up(Payload.generated(rows=300), window_tokens=WINDOW)
    screen = ResultScreen.standard()
    scene.play(screen)
    screen.summed_up(scene.ledger, scene.tally, scene.failures)
    assert any("answers are wrong" in failure for failure in scene.failures)
    assert "FAILED" in capsys.readouterr().out
