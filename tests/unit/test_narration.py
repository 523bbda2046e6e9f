"""Does the demo tell in plain words what happened?"""

from langchain_ctxwin.demo.narration import explain


def compacted(*actions):
    """A compaction as it is announced, in words."""
    event = {
        "type": "context.compacted",
        "kind": "force",
        "reason": "why",
        "actions": list(actions),
        "tokens_before": 4_008,
        "tokens_after": 4_883,
    }
    return "".join(text for text, _ in explain(event))


def test_a_summary_that_is_only_shown_compresses_nothing():
    """It may even make the request larger, when what it covers had left before."""
    told = compacted("summaries swapped in: 1")
    assert told == "~ shown: the summary that was ready; the request went 4,008 -> 4,883 tokens  (why)"


def test_a_summary_among_other_actions_is_told_with_them():
    """The request became smaller by all of them."""
    told = compacted("summaries swapped in: 1", "messages dropped: 2")
    assert told == "~ compressed 4,008 -> 4,883 tokens: summaries swapped in: 1; messages dropped: 2  (why)"
