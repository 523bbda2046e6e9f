"""Does a search of a history return whole messages by relevance, within its budget, and say what it left out?"""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_ctxwin import ConfigError, ContextWindowError, TokenEstimator, search_messages
from langchain_ctxwin.recall import PASSAGE_CHARS, Found, asearch_messages, readable_text
from support.conversations import conversations

FILLER = [f"Entry {number} is about gardening, weather and breakfast." for number in range(8)]


def history(*texts, between=6):
    """Put filler around the texts, so that neighbors of a hit are not other hits."""
    rows = []
    for text in texts:
        rows.extend(FILLER[:between])
        rows.append(text)
    rows.extend(FILLER[:between])
    return [HumanMessage(row, id=f"m{index}") if isinstance(row, str) else row for index, row in enumerate(rows)]


def words(messages):
    """Count whitespace-separated words of all messages."""
    return sum(len(readable_text(message).split()) for message in messages)


class Topics(Embeddings):
    """Tells animals from money, in two dimensions; counts what it embeds."""

    def __init__(self):
        self.embedded = []

    def embed_documents(self, texts):
        self.embedded.extend(texts)
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        return [float("cat" in text or "pet" in text), float("bank" in text or "cash" in text)]


def best(messages, query, **options):
    return search_messages(messages, query, **options)[0].text


def test_the_best_message_comes_first_and_is_the_message_itself():
    """Messages are returned as they are in the history, ids included."""
    messages = history("The spare key is under the flower pot.", "Her flight lands at noon.")
    assert search_messages(messages, "Where is the spare key?")[0] is messages[6]


def test_what_stands_around_a_match_follows_it():
    """An answer is found by its question."""
    messages = history("What is your favourite colour?", between=3)
    messages.insert(4, AIMessage("Teal.", id="answer"))
    assert [m.id for m in search_messages(messages, "favourite colour", max_tokens=60)][:2] == ["m3", "answer"]


def test_a_message_that_does_not_fit_is_left_out_and_named():
    """Smaller messages behind it are still returned; nothing is cut."""
    big, small = HumanMessage("falcon " * 30, id="big"), HumanMessage("One falcon flew over it all.", id="small")
    found = search_messages([big, *history(), small], "falcon", max_tokens=12, counter=lambda ms, **_: words(ms))
    assert ([m.id for m in found], found.tokens, found.truncated) == (["small"], 6, True)
    assert "big" in [m.id for m in found.dropped]


def test_a_result_is_a_list_that_also_counts():
    """It can be put into a prompt or a state like any list of messages."""
    messages = history("The spare key is under the pot.", between=0)
    found = search_messages(messages, "key")
    assert found == Found(messages)
    assert isinstance(found, list)
    assert (found.dropped, found.truncated, found.tokens) == ((), False, TokenEstimator()(messages))


def test_nothing_in_common_finds_nothing():
    """An empty result costs nothing and is not truncated."""
    found = search_messages(history("The spare key."), "submarine")
    assert (list(found), found.dropped, found.tokens, found.truncated) == ([], (), 0, False)


@pytest.mark.parametrize("query", ["???", "\ud800", "🙂"])
def test_a_query_without_words_finds_nothing(query):
    """What is no word matches no message."""
    assert search_messages(history("The spare key."), query) == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The order ORD-1234 was shipped.", "ord-1234"),
        ("The order ORD-1234 was shipped.", "1234"),
        ("See src/billing/invoice_total.py for it.", "invoice_total.py"),
        ("See src/billing/invoice_total.py for it.", "total of the invoice"),
        ("Call getUserName() first.", "user name"),
        ("Call getUserName() first.", "getusername"),
        ("They adopted two puppies.", "Who is adopting a puppy?"),
        ("She is running a race on Friday.", "runs"),
        ("\uff21\uff22\uff23 in full width", "abc"),
        ("我们明天在东京见面。", "东京"),
        ("会議は来週の火曜日です。", "火曜日"),
        ("ประชุมวันอังคารหน้า", "วันอังคาร"),
        ("회의는 화요일에 있습니다.", "화요일"),
        ("बैठक मंगलवार को है।", "मंगलवार"),
        ("Réunion à l'hôtel Bellevue.", "HÔTEL"),
    ],
)
def test_a_message_is_found_by_a_form_or_a_part_of_its_words(text, query):
    """Identifiers match whole and by parts, English words in other forms, other scripts without spaces."""
    assert best(history("Something else entirely.", text), query) == text


def test_common_words_do_not_outweigh_a_rare_one():
    """In a short history every word is rare; those of every question do not count."""
    messages = history("Where is it and what was it that you did there?", "The passport lies in the drawer.")
    assert best(messages, "Where did you put it, the passport?") == "The passport lies in the drawer."


def test_a_query_of_common_words_alone_is_searched_as_it_is():
    """`who are you` is a question, too."""
    assert best(history("Who are you?"), "who are you") == "Who are you?"


def test_calls_and_results_are_searched():
    """Arguments of tool calls and the results of tools are part of what happened."""
    call = AIMessage("", id="call", tool_calls=[{"name": "find_hotel", "args": {"city": "Lisbon"}, "id": "c1"}])
    result = ToolMessage("Hotel Miramar, 90 EUR", tool_call_id="c1", id="result")
    messages = [*history("Nice.")[:7], call, result, *history("Good.")]
    queries = ("lisbon", "find hotel", "Miramar price")
    assert [search_messages(messages, query)[0].id for query in queries] == ["call", "call", "result"]


def test_reasoning_is_not_searched():
    """What the model thought is not what was said."""
    thought = {"type": "reasoning", "reasoning": "the user sounds like a zeppelin pilot"}
    wrapped = {"type": "non_standard", "value": {"type": "thinking", "thinking": "zeppelin"}}
    messages = [AIMessage([thought, wrapped, {"type": "text", "text": "Hello."}]), HumanMessage("Hi.")]
    assert search_messages(messages, "zeppelin") == []


def test_a_text_that_is_attached_is_searched():
    """Documents that come as text are read like text."""
    document = {"type": "text-plain", "text": "The warranty ends in May.", "mime_type": "text/plain"}
    source = {"type": "document", "source": {"type": "text", "data": "The lease ends in June."}}
    messages = [HumanMessage([document], id="a"), *history(), HumanMessage([source], id="b")]
    assert [search_messages(messages, query)[0].id for query in ("warranty", "lease")] == ["a", "b"]


def test_a_long_message_is_found_by_a_passage_of_it():
    """A single sentence in a long result weighs as much as it would alone."""
    log = "nothing happened here " * PASSAGE_CHARS + "\nThe valve broke.\n" + "nothing happened here " * PASSAGE_CHARS
    messages = [*history("Nothing to report."), ToolMessage(log, tool_call_id="c", id="log"), *history()]
    assert search_messages(messages, "valve", max_tokens=10**6)[0].id == "log"


def test_a_speaker_is_found_by_name():
    """The name of who speaks counts as said."""
    messages = [*history(), HumanMessage("I was born in Oslo.", name="Ingrid", id="i"), *history()]
    assert search_messages(messages, "Ingrid")[0].id == "i"


def test_equal_matches_come_newest_first():
    """What was said last is more likely to hold."""
    messages = [
        HumanMessage("My number is 5.", id="old"),
        *history(between=8),
        HumanMessage("My number is 5.", id="new"),
    ]
    assert [m.id for m in search_messages(messages, "number")][:2] == ["new", "old"]


def test_embeddings_rank_by_meaning():
    """No common word is needed."""
    messages = [HumanMessage("My cat is grey."), HumanMessage("The bank is shut."), HumanMessage("")]
    assert [m.text for m in search_messages(messages, "pet", embeddings=Topics())] == ["My cat is grey."]


def test_embeddings_that_do_not_fit_together_are_named():
    """A query's vector of another length is an error that says so."""

    class Broken(Topics):
        def embed_documents(self, texts):
            return [[1.0, 0.0, 0.0] for _ in texts]

    with pytest.raises(ContextWindowError, match="one model for documents and queries"):
        search_messages([HumanMessage("cat")], "pet", embeddings=Broken())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"query": ""}, "query=''"),
        ({"query": " \n"}, "words to search"),
        ({"query": None}, "query=None"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": -5}, "max_tokens=-5"),
        ({"max_tokens": 2.5}, "max_tokens=2.5"),
        ({"max_tokens": True}, "max_tokens=True"),
        ({"counter": 3}, "counter=3"),
        ({"embeddings": "minilm"}, "embeddings='minilm'"),
        ({"messages": "text"}, "list of messages"),
        ({"messages": HumanMessage("one")}, "list of messages"),
        ({"messages": None}, "messages=None"),
        ({"messages": [object()]}, "list of messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "list of messages"),
    ],
)
async def test_arguments_that_cannot_be_used_are_refused_before_any_work(arguments, problem):
    """The error names the argument and its value."""
    given = {"messages": [HumanMessage("key")], "query": "key", **arguments}
    messages, query = given.pop("messages"), given.pop("query")
    with pytest.raises(ConfigError, match=problem):
        search_messages(messages, query, **given)
    with pytest.raises(ConfigError, match=problem):
        await asearch_messages(messages, query, **given)


def test_messages_may_have_any_form_that_langchain_takes():
    """Pairs and dicts are converted."""
    messages = [("user", "The key is blue."), {"role": "assistant", "content": "Noted."}]
    assert best(messages, "blue key") == "The key is blue."


def test_the_package_does_not_import_the_index_before_a_search():
    """Numpy takes longer to import than everything else."""
    code = "import langchain_ctxwin, json, sys; print(json.dumps('numpy' in sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(output) is False


def test_a_search_prints_and_logs_nothing(capfd, caplog):
    """Who searches hears only what was found."""
    search_messages(history("The key."), "key")
    assert (capfd.readouterr(), caplog.records) == (("", ""), [])


QUERIES = st.one_of(
    st.sampled_from(("question", "read path lorem", "thought", "#1", "lone \ud800", "東京")), st.text(min_size=1)
)
COUNTERS = st.sampled_from((None, count_tokens_approximately, words))


@settings(deadline=None)  # the first search imports the index
@given(
    messages=conversations(huge=True),
    query=QUERIES.filter(str.strip),
    max_tokens=st.integers(1, 3_000),
    counter=COUNTERS,
)
async def test_kept_and_dropped_are_what_matches_and_kept_fits(messages, query, max_tokens, counter):
    """For any history: disjoint parts of it, the same as with room for all, within the budget, sync as async."""
    count = (lambda ms, **_: words(ms)) if counter is words else counter
    found = search_messages(messages, query, max_tokens=max_tokens, counter=count)
    everything = search_messages(messages, query, max_tokens=10**9, counter=count)
    positions = {id(message): index for index, message in enumerate(messages)}
    kept, dropped = [positions[id(m)] for m in found], [positions[id(m)] for m in found.dropped]
    ranked = [positions[id(m)] for m in everything]
    assert (sorted(kept + dropped), everything.dropped) == (sorted(ranked), ())
    assert (kept, dropped) == ([p for p in ranked if p in kept], [p for p in ranked if p in dropped])
    assert (count or TokenEstimator())(list(found)) <= found.tokens <= max_tokens or not found
    again = await asearch_messages(messages, query, max_tokens=max_tokens, counter=count)
    assert (again, again.dropped, again.tokens) == (found, found.dropped, found.tokens)


@settings(deadline=None)  # the first search imports the index
@given(messages=conversations(), query=QUERIES.filter(str.strip), max_tokens=st.integers(1, 3_000))
async def test_sync_and_async_agree_with_embeddings(messages, query, max_tokens):
    """Whatever the vectors, the same messages come back."""
    embeddings = DeterministicFakeEmbedding(size=4)
    options = {"max_tokens": max_tokens, "embeddings": embeddings}
    safe = [m for m in messages if "\ud800" not in str(m.content)]  # the fake hashes UTF-8
    found = search_messages(safe, query.replace("\ud800", "?"), **options)
    assert await asearch_messages(safe, query.replace("\ud800", "?"), **options) == found


def test_a_system_message_and_an_empty_history_are_no_trouble():
    """Rules are part of the history; no history finds nothing."""
    assert (best([SystemMessage("Answer in verse.")], "verse"), search_messages([], "verse")) == (
        "Answer in verse.",
        [],
    )
