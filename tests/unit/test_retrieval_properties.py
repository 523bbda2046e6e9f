"""Which promises does every retrieval keep?"""

import asyncio
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from support.chunks import SCORES, budgeted, chunk, marked, names

TOO_BIG = 10**400  # beyond every float

found_documents = st.lists(
    st.builds(
        lambda size, score: (size, score),
        st.integers(0, 12),
        st.sampled_from(SCORES) | st.floats() | st.integers(-3, 3),
    ),
    max_size=8,
).map(lambda pairs: [chunk(f"{index:02}", size, score) for index, (size, score) in enumerate(pairs)])
options = st.fixed_dictionaries(
    {
        "max_context_tokens": st.integers(1, 40),
        "k": st.none() | st.integers(1, 9),
        "on_overflow": st.sampled_from(["stop", "skip"]),
    }
)


@given(found=found_documents, options=options)
def test_kept_and_dropped_are_the_input_and_fit(found, options):
    """Every document is kept whole or dropped, the kept ones fit and are counted, the flag is the budget's."""
    with capture_logs() as logs:
        result = budgeted(found, **options).retrieve("q")
    everything = [*result.documents, *result.dropped]
    assert sorted(names(everything)) == names(found)
    by_name = {document.metadata["name"]: document for document in found}
    assert all(d == marked(by_name[d.metadata["name"]], truncated=result.truncated) for d in result.documents)
    assert result.tokens == sum(len(d.page_content) for d in result.documents) <= options["max_context_tokens"]
    assert len(result.documents) <= (options["k"] or len(found))
    asked_for = min(len(found), options["k"] or len(found))
    assert result.truncated == (len(result.documents) < asked_for)
    assert len(logs) == result.truncated


@given(found=found_documents, options=options)
def test_both_parts_are_in_descending_order_and_stable(found, options):
    """Numbers first, descending; equal scores and documents without one in the base's order; with stop, a prefix."""
    result = budgeted(found, **options).retrieve("q")

    def place(document):
        score = document.metadata.get("score")
        usable = isinstance(score, float | np.floating) or (type(score) is int and score != TOO_BIG)
        return (0, -float(score)) if usable and not math.isnan(score) else (1, 0)

    expected = names(sorted(found, key=place))
    assert [name for name in expected if name in names(result.documents)] == names(result.documents)
    assert [name for name in expected if name in names(result.dropped)] == names(result.dropped)
    if options["on_overflow"] == "stop":
        assert names([*result.documents, *result.dropped]) == expected


@given(found=found_documents, options=options)
def test_async_gives_what_sync_gives(found, options):
    """The four entry points agree."""
    retriever = budgeted(found, **options)
    result = retriever.retrieve("q")
    assert asyncio.run(retriever.aretrieve("q")) == result
    assert asyncio.run(retriever.ainvoke("q")) == retriever.invoke("q") == list(result.documents)


@given(found=found_documents, options=options)
def test_retrieving_again_from_what_was_kept_changes_nothing(found, options):
    """The selection is idempotent: its own result fits, in the same order."""
    result = budgeted(found, **options).retrieve("q")
    again = budgeted(list(result.documents), **options).retrieve("q")
    assert (names(again.documents), again.dropped, again.truncated) == (names(result.documents), (), False)
