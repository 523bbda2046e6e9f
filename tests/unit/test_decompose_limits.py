"""Do the parts of large work keep to the limits, whatever metadata, counters and providers do, and at what price?"""

import re
import threading
from collections import Counter

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langchain_ctxwin import BudgetExceededError, ConfigError, ModelLimits, TokenEstimator
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.decompose import create_map_reduce_graph
from langchain_ctxwin.decompose.parts import Answer, PartSplitter, whole_work
from langchain_ctxwin.decompose.splitting import chunk_of, split_chunks
from support.fakes import ScriptedChatModel, SdkError, openai_overflow, script

LIMITS = ModelLimits(1600, requested_output_tokens=400)
INPUT = 1200
DOORS = "The door of oak has two hinges of brass. "
CONFIG = {"configurable": {"thread_id": "1"}}
BOTH = '["Which doors are there?", "Which keys are there?"]'
_SHOWN = re.compile(r'<document number="\d+"(?: from_character="(\d+)")?[^>]*>\n(.*?)\n</document>', re.DOTALL)


def graph_of(model, **options):
    return create_map_reduce_graph(model, **{"limits": LIMITS, "counter": TokenEstimator("openai"), **options})


def model_of(policy, limit=INPUT):
    return ScriptedChatModel(policy=policy, input_limit=limit, overflow=openai_overflow)


def shown_text(model):
    """The text of the one document, as the last calls for each place were shown it; refused ones came before."""
    shown = [found for request in model.requests for found in _SHOWN.findall(request.messages[-1].text)]
    by_place = {int(at or 0): text for at, text in shown}
    return "".join(by_place[at] for at in sorted(by_place))


def growing(divisor):
    """A counter whose requests cost more than their parts: the overhead grows with the square of the size."""

    def count(messages, tools=None):
        tokens = sum(len(message.text) for message in messages) // 4
        return tokens + tokens * tokens // divisor

    count.exact = True
    return count


def splitter_of(counter, window=4_000):
    limits = ModelLimits(window, requested_output_tokens=100)
    return PartSplitter(None, limits=limits, counter=counter, map_prompt="Answer.", reduce_prompt="Combine.")


def whole(level=0, *texts):
    return whole_work("run", "Which?", level, [chunk_of(number, text) for number, text in enumerate(texts)])


def excesses(splitter, works):
    return [splitter.over_by(splitter.request_of(work)) for work in works]


def test_large_metadata_are_shortened_and_leave_room_for_the_text():
    """A frame that fills the room would cut the text into single tokens, each of them a call."""
    metadata = dict.fromkeys(("source", "url", "title", "section", "page"), "漢字の長い題名" * 40)
    model = model_of(script("ok"))
    result = graph_of(model).invoke(
        {"question": "Which?", "documents": ["A short one.", Document(DOORS * 120, metadata=metadata)]}
    )
    assert result["report"]["shortened_sources"] == [1]
    assert result["parts"] <= 3
    assert result["report"]["refused"] == 0
    assert all('source="漢字' in request.messages[-1].text for request in model.requests[:1])


def test_a_frame_that_leaves_no_room_is_refused():
    """Pieces of a few tokens are no parts; what fits whole is no piece."""
    chunk = chunk_of(3, "x" * 50)
    with pytest.raises(BudgetExceededError, match=r"around documents\[3\] needs 30 tokens of a room of 70"):
        split_chunks([chunk], 70, len, lambda chunk: "-" * 30, least_tokens=41)
    assert len(split_chunks([chunk], 80, len, lambda chunk: "-" * 30, least_tokens=64)[0]) == 1


@pytest.mark.parametrize("times", [270, 2_000])
def test_a_question_too_large_for_any_part_is_not_sent_to_be_split(times):
    """The room is checked before the first call is paid, also where the request to split would fit."""
    model = model_of(script(BOTH))
    with pytest.raises(BudgetExceededError):
        graph_of(model, sub_questions=True).invoke({"question": "Which door? " * times, "text": "a"})
    assert model.requests == []


def test_a_request_to_split_that_is_too_large_is_left_to_the_rules():
    """The instructions for splitting may be longer than those for the parts."""
    model = model_of(script("ok"))

    def count(messages, tools=None):
        return 5_000 if messages and messages[0].text.startswith("Split") else 9

    questions = ["Which door is made of oak?", "Which key is made of brass?"]
    result = graph_of(model, sub_questions=True, counter=count).invoke({"question": " ".join(questions), "text": "a"})
    assert result["report"]["sub_questions"] == questions
    assert not any(request.messages[0].text.startswith("Split") for request in model.requests)
    assert result["report"]["calls"] == len(model.requests) == 3


def test_sub_questions_that_leave_no_room_are_dropped():
    """The whole question fits: it is answered as it is."""
    long_ones = f'["{"first part " * 150}", "{"second one " * 150}"]'
    model = model_of(lambda m, tools=(): AIMessage(long_ones if m[0].text.startswith("Split") else "ok"))
    result = graph_of(model, sub_questions=True, limits=ModelLimits(1200, requested_output_tokens=300)).invoke(
        {"question": "Which door? " * 62, "text": "a " * 300}
    )
    assert (result["answer"], result["report"]["sub_questions"]) == ("ok", [])


def test_a_stated_limit_holds_for_all_parts_of_the_run():
    """Who is told the limit splits to it; parts that wait are split before they are sent."""
    model = model_of(script("ok"), limit=3_000)
    graph = graph_of(model, limits=ModelLimits(24_000, requested_output_tokens=400), max_concurrency=1)
    text = DOORS * 8_000
    report = graph.invoke({"question": "Which?", "text": text})["report"]
    assert report["parts"][0] > 3
    assert report["refused"] == 1
    assert report["calls"] < 60  # halving each part by itself makes more than a hundred
    assert shown_text(model) == text
    assert len(report["cuts"]) == len({cut["at"] for cut in report["cuts"]})


def test_a_part_that_is_refused_at_any_size_is_given_up_soon():
    """Its size is not the reason: halving it ends at the first piece that is too small to be halved."""
    calls = []

    def refuse(messages, tools=()):
        calls.append(messages)
        raise openai_overflow(9_000, 8_192)

    with pytest.raises(SdkError):
        graph_of(model_of(refuse), max_concurrency=1).invoke({"question": "Which?", "text": DOORS * 70})
    assert len(calls) <= 2 * 6


def test_what_was_not_sent_any_more_is_reported():
    """One failure covers the whole rest of a part that is refused at any size."""

    def refuse_keys(messages, tools=()):
        if "key" in messages[-1].text:
            raise openai_overflow(9_000, 8_192)
        return AIMessage("ok")

    documents = [DOORS * 60, "A key is here. " * 150]
    result = graph_of(model_of(refuse_keys), map_prompt="Answer.").invoke(
        {"question": "Which?", "documents": documents}
    )
    covered = Counter()
    for failure in result["failures"]:
        for place in failure["chunks"]:
            covered[place["document"]] += place["stop"] - place["start"]
    assert covered[1] == len(documents[1])


def test_a_limit_that_is_no_window_teaches_nothing():
    """A larger limit than ours, one below any window, and one that leaves no room are not believed."""
    splitter = splitter_of(TokenEstimator("openai"))
    work = whole(0, DOORS)
    for limit in (None, 90_000, 100, 256):
        splitter.hear("run", ContextOverflow(limit=limit))
        assert not splitter.is_known_too_large(work)


def test_an_outage_reports_no_cut_twice():
    """Parts that are tried again are cut again at the same places."""
    state = {"is_down": True}

    def answer(messages):
        if len(messages[-1].text) > 3_000:
            raise openai_overflow(9_000, 800)
        if state["is_down"]:
            raise SdkError("down", status_code=503)
        return AIMessage("ok")

    graph = graph_of(RunnableLambda(answer), checkpointer=InMemorySaver())
    with pytest.raises(SdkError, match="down"):
        graph.invoke({"question": "Which?", "text": DOORS * 500}, CONFIG)
    state["is_down"] = False
    places = [cut["at"] for cut in graph.invoke(None, CONFIG)["report"]["cuts"]]
    assert places == sorted(set(places))


@pytest.mark.parametrize(("refused", "taken"), [("documents", "text"), ("text", "documents")])
def test_a_thread_goes_on_after_an_input_that_was_refused(refused, taken):
    """Each input replaces the one before, also where it is given by the other name."""
    bad = {"documents": [3], "text": b"a"}
    good = {"documents": ["A door."], "text": "A door."}
    model = model_of(script("ok"))
    graph = graph_of(model, checkpointer=InMemorySaver())
    with pytest.raises(ConfigError):
        graph.invoke({"question": "Which?", refused: bad[refused]}, CONFIG)
    assert graph.invoke({"question": "Which?", taken: good[taken]}, CONFIG)["answer"] == "ok"
    assert "A door." in model.requests[-1].messages[-1].text


async def test_nothing_is_priced_on_the_event_loop():
    """Splitting the input, splitting what was refused, and combining all take time that other tasks need."""
    threads = []

    class Watched(TokenEstimator):
        def __call__(self, messages, tools=None):
            threads.append(threading.get_ident())
            return super().__call__(messages, tools=tools)

        def count_text(self, text):
            threads.append(threading.get_ident())
            return super().count_text(text)

    refusals = iter([openai_overflow(1_300, 900)])

    async def answer(messages):
        is_part = not messages[0].text.startswith("Split")
        if is_part and (refusal := next(refusals, None)):
            raise refusal
        return AIMessage("ok")

    graph = graph_of(
        RunnableLambda(lambda messages: AIMessage("ok"), afunc=answer), counter=Watched("openai"), sub_questions=True
    )
    threads.clear()
    result = await graph.ainvoke({"question": "Which?", "text": DOORS * 300})
    assert (result["report"]["parts"][-1], result["report"]["refused"]) == (1, 1)
    assert threads
    assert threading.get_ident() not in threads


def asks_about_keys(messages):
    """A model that asks a person about the part with the key, and answers the others."""
    return AIMessage(interrupt("May I?") if "key" in messages[-1].text else "ok")


KEYS = {"question": "Which?", "documents": [DOORS * 60, "A key is here. " * 60, DOORS * 60]}


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_interrupt_is_no_failure_of_a_part(is_async):
    """A model that asks a person stops the graph; with the reply the run goes on."""

    async def answer(messages):
        return asks_about_keys(messages)

    graph = graph_of(RunnableLambda(asks_about_keys, afunc=answer), checkpointer=InMemorySaver())

    async def run(values):
        return await graph.ainvoke(values, CONFIG) if is_async else graph.invoke(values, CONFIG)

    assert (await run(KEYS))["__interrupt__"][0].value == "May I?"
    result = await run(Command(resume="yes"))
    assert (result["answer"], result["failures"]) == ("ok", [])


def test_an_interrupt_while_the_question_is_split_stops_the_graph():
    """The input is kept until the reply is there."""

    def answer(messages):
        return AIMessage(interrupt("May I?") if messages[0].text.startswith("Split") else "ok")

    graph = graph_of(RunnableLambda(answer), checkpointer=InMemorySaver(), sub_questions=True)
    given = {"question": "Which doors are there and which keys?", "text": "A door of oak."}
    assert graph.invoke(given, CONFIG)["__interrupt__"][0].value == "May I?"
    result = graph.invoke(Command(resume=BOTH), CONFIG)
    assert result["report"]["sub_questions"] == ["Which doors are there?", "Which keys are there?"]


@pytest.mark.parametrize("divisor", [20_000, 2_000, 300])
def test_every_request_fits_where_it_costs_more_than_its_parts(divisor):
    """By a smaller room first and smaller parts then; answers that do not fit together are divided, or shortened."""
    splitter = splitter_of(growing(divisor))
    texts = [DOORS * 12] * 60
    works = splitter.of_documents(whole(0, *texts)).works
    assert set(excesses(splitter, works)) == {0}
    assert sum(len(work["chunks"]) for work in works) >= len(texts)
    answers = [Answer(text=DOORS * 12, sub_question="", covers=[])] * 40
    asked = [work for work in splitter.of_answers(whole(1), answers).works if len(work["chunks"]) > 1]
    assert set(excesses(splitter, asked)) == {0}


def test_a_smaller_room_wastes_less_than_halves():
    """All parts but the last are filled for more than half."""
    splitter = splitter_of(growing(20_000))
    works = splitter.of_documents(whole(0, *[DOORS * 12] * 60)).works
    assert set(excesses(splitter, works)) == {0}
    tokens = [sum(len(chunk["text"]) for chunk in work["chunks"]) for work in works[:-1]]
    assert min(tokens) > 0.75 * max(tokens)
    assert max(map(growing(20_000), map(splitter.request_of, works))) > 0.75 * splitter.input_limit


def test_long_sub_questions_leave_room_for_their_answers():
    """What is shown around an answer is shortened, too, where the window is small."""
    splitter = splitter_of(TokenEstimator("openai"), window=560)
    answers = [Answer(text=DOORS * 12, sub_question=f"{number}" + "漢" * 250, covers=[]) for number in range(4)]
    works = splitter.of_answers(whole(1), answers).works
    assert [len(work["chunks"]) for work in works] == [2, 2]
    assert excesses(splitter, works) == [0, 0]
