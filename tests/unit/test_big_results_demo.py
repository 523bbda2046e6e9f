"""Does the demo of large results read as a model would, and does it notice a wrong answer?"""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin import ConfigError, CursorTamperedError, ToolResultConfig, ToolResultGuard
from langchain_ctxwin.demo import row_phrases, ruler
from langchain_ctxwin.demo.big_results import BigResults, RowTools, changed
from langchain_ctxwin.demo.page_reading import read_page
from langchain_ctxwin.demo.payload import Payload
from langchain_ctxwin.demo.reader_model import ReaderModel, newest_cursor
from langchain_ctxwin.demo.row_questions import Inquiry, spelled
from langchain_ctxwin.demo.sight import digest
from langchain_ctxwin.demo.tally import Tally

WINDOW = 8192


@pytest.fixture(scope="module")
def payload():
    """A payload of some 60,000 tokens, with one long log."""
    return Payload.generated(rows=240)


@pytest.fixture
def inquiry(payload):
    """The questions about it."""
    return Inquiry(payload)


def _first_page(payload, max_tokens=600):
    guard = ToolResultGuard(ToolResultConfig(max_tokens=max_tokens))
    return guard, guard.output(payload.text, "fetch_rows", {})


def _asked(question, *results):
    """A request in which the model already made calls, and their results."""
    messages = [HumanMessage(question.text)]
    for number, (name, args, text) in enumerate(results):
        call = {"name": name, "args": args, "id": str(number)}
        messages += [AIMessage("", tool_calls=[call]), ToolMessage(text, tool_call_id=str(number), name=name)]
    return messages


def _answer(messages):
    return ReaderModel(context_window=100_000, max_tokens=1_000).invoke(messages)


def test_the_generated_payload_has_half_a_million_tokens():
    """The default size; the same seed makes the same text, another one another."""
    payload = Payload.generated()
    assert 490_000 < ruler.text_tokens(payload.text) < 560_000
    assert json.loads(payload.text) == list(payload.rows)
    texts = [Payload.generated(seed=seed, rows=20).text for seed in (1, 1, 2)]
    assert (texts[0] == texts[1], texts[0] == texts[2]) == (True, False)


@pytest.mark.parametrize("name", ["rows.json", "rows.json.gz"])
def test_a_file_is_read_as_it_is(tmp_path, name):
    """The tool returns the text of the file, compressed or not."""
    text = '[{"a": 1},  {"a": 2.50}]'
    data = text.encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    read = Payload.read(path)
    assert (read.name, read.text, read.rows) == (name, text, ({"a": 1}, {"a": 2.5}))


def test_a_data_folder_gives_its_largest_array_of_objects(tmp_path):
    """What is larger and no array of objects is passed over."""
    folder = tmp_path / "json_payloads" / "deep"
    folder.mkdir(parents=True)
    (folder / "object.json").write_text(json.dumps({"a": "x" * 5_000}))
    (folder / "broken.json.gz").write_bytes(b"\x1f\x8b no gzip" * 900)
    (folder / "small.json").write_text(json.dumps([{"a": 1}]))
    (folder / "large.json.gz").write_bytes(gzip.compress(json.dumps([{"a": "x" * 900}] * 2).encode()))
    assert Payload.read(tmp_path).name == "large.json.gz"


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', "[1]"])
def test_what_is_no_array_of_objects_is_refused(tmp_path, text):
    """The message names the file."""
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"rows\.json .*give a"):
        Payload.read(path)


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path):
    """Both say what to give."""
    for path in (tmp_path / "nothing.json", tmp_path):
        with pytest.raises(ConfigError, match="give a"):
            Payload.read(path)


def test_every_question_is_understood_as_it_was_asked(inquiry):
    """What the reader reads back is what was filled in; all kinds are asked about the generated rows."""
    asked = [inquiry.opening(), *inquiry.questions(), inquiry.borrowed("a.b.c.d"), inquiry.later(), inquiry.closing()]
    assert [row_phrases.WORDING.understand(question.text) for question in asked] == [(q.kind, q.fields) for q in asked]
    assert {question.kind for question in asked} == set(row_phrases.QUESTIONS)


def test_the_first_question_is_about_a_row_near_the_end_that_one_value_names(payload, inquiry):
    """The value stands in one row alone, and that row is among the last."""
    fields = inquiry.opening().fields
    places = [index for index, row in enumerate(payload.rows) if str(row[fields["key"]]) == fields["value"]]
    assert (len(places), places[0] >= int(0.97 * len(payload.rows))) == (1, True)


def test_the_count_is_about_a_field_that_pages_leave_out(payload, inquiry):
    """Answering needs `fields`."""
    field = next(question for question in inquiry.questions() if question.kind == "count").fields["field"]
    page = read_page(_first_page(payload)[1])
    assert field not in page.body.split("\n")[0].split("|")


def test_rows_without_names_are_refused():
    """There would be nothing to ask for."""
    with pytest.raises(ConfigError, match="names one row alone"):
        Inquiry(Payload(name="same", rows=({"a": "x"},) * 50, text=""))


def test_a_payload_that_fits_the_window_is_refused():
    """There would be nothing to show."""
    small = Payload.generated(rows=4)
    with pytest.raises(ConfigError, match="give a larger payload"):
        BigResults.set_up(small, window_tokens=50_000)


@settings(deadline=None, max_examples=40)  # up to 60 rows each
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"id": st.integers(0, 10**6)},
            optional={
                "a b": st.text(max_size=20) | st.none() | st.booleans(),
                "note": st.sampled_from(["", "7", "true", "x|y", "x, y; z: w", "# x", '{"a"}', "plain", 1.5, "a\nb"]),
            },
        ),
        min_size=30,
        max_size=60,
    )
)
def test_the_reader_reads_back_the_rows_of_all_pages(rows):
    """What stands on the pages, read by their text alone, is what was returned; rows without a field are {}."""
    guard = ToolResultGuard(ToolResultConfig(max_tokens=400))
    first = guard.output(json.dumps([*rows, {"id": 1, "pad": "pad " * 3_000}]), "fetch_rows", {})
    wanted = ["id", "a b", "note"]
    text = guard.read(newest_cursor([ToolMessage(first, tool_call_id="1")]), fields=wanted)
    read = []
    while page := read_page(text):
        read += page.rows
        if not page.following:
            break
        text = guard.read(page.following, fields=wanted)
    assert read == [*rows, {"id": 1}]


def test_the_reader_fetches_searches_and_answers(payload, inquiry):
    """Three steps, each from what the request shows: no result, a first page, the row that was found."""
    question = inquiry.opening()
    fields = question.fields
    guard, first = _first_page(payload)
    fetch = _answer(_asked(question)).tool_calls[0]
    search = _answer(_asked(question, ("fetch_rows", {}, first))).tool_calls[0]
    assert (fetch["name"], search["name"], search["args"]["contains"]) == ("fetch_rows", "read_more", fields["value"])
    found = guard.read(**search["args"])
    answer = _answer(_asked(question, ("fetch_rows", {}, first), ("read_more", search["args"], found)))
    assert inquiry.verify(answer.text, question).is_true


def test_the_reader_says_what_it_cannot_see(payload, inquiry):
    """A page that was clamped on its way, or of other rows, gives no answer."""
    question = inquiry.opening()
    first = _first_page(payload)[1]
    clamped = f"{first[:300]}\n[... 4,000 characters left out; ]\n{first[-300:]}"
    for result in (("fetch_rows", {}, clamped), ("read_more", {}, first.replace("fetch_rows returned", "Result of"))):
        assert not inquiry.verify(_answer(_asked(question, result)).text, question).is_true


def test_a_cursor_that_is_refused_makes_the_reader_fetch_again(payload, inquiry):
    """The error result says so; the next move is the tool, not a guess."""
    messages = _asked(inquiry.later(), ("read_more", {"cursor": "x"}, "this result is no longer stored"))
    messages[-1].status = "error"
    assert [call["name"] for call in _answer(messages).tool_calls] == ["fetch_rows"]


def test_the_newest_first_page_gives_the_cursor(payload):
    """Cursors of later pages go on where they are, so a search does not begin with them."""
    guard, first = _first_page(payload)
    later = guard.read(read_page(first).following)
    messages = [ToolMessage(text, tool_call_id="1") for text in (first, later)]
    assert newest_cursor(messages) == read_page(first).cursor
    assert newest_cursor(messages[1:]) == ""


def test_the_changed_cursor_is_well_formed_and_refused(payload):
    """It is refused for its tag, not for its form."""
    guard, first = _first_page(payload)
    with pytest.raises(CursorTamperedError, match="was changed, or belongs to another"):
        guard.read(changed(read_page(first).cursor))


def test_a_wrong_fact_is_noticed(payload, inquiry):
    """One wrong number, a missing fingerprint or one fact too many makes an answer wrong."""
    question = next(question for question in inquiry.questions() if question.kind == "count")
    field, value = question.fields["field"], question.fields["value"]
    rows = sum(spelled(row[field]) == value for row in payload.rows)
    right = {"question": digest(question.text), "rows": rows}
    answers = [right, right | {"rows": rows + 1}, {"rows": rows}, right | {"more": 1}]
    texts = [f"x\nEvidence: {json.dumps(answer)}\n{inquiry.rule_word}" for answer in answers]
    verdicts = [inquiry.verify(text, question) for text in texts]
    assert [verdict.is_true for verdict in verdicts] == [True, False, False, False]
    assert all(verdict.keeps_rule for verdict in verdicts)


def test_a_page_over_its_size_is_a_failure():
    """The tally names size and limit."""
    tally = Tally(raw_tokens=10_000, window_tokens=1_000, largest_allowed=5)
    tally.add(ToolMessage("one two", tool_call_id="1", name="fetch_rows"))
    assert tally.failures == []
    tally.add(ToolMessage("one two three four five six seven", tool_call_id="2", name="read_more"))
    assert [text.partition(" tokens")[0] for text in tally.failures] == [f"a page of {tally.largest_shown}"]
    assert (tally.results, tally.pages, tally.errors) == (1, 1, 0)


def test_a_row_that_is_not_there_is_a_tool_error(payload):
    """The model can read why and go on."""
    tools = {tool.name: tool for tool in RowTools(payload).tools()}
    call = {"type": "tool_call", "name": "read_row", "id": "1", "args": {"field": "id", "value": "nobody"}}
    message = tools["read_row"].invoke(call)
    assert (message.status, "there is no row whose id is 'nobody'" in message.text) == ("error", True)
