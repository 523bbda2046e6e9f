"""What a model reads of large results stays the same, byte for byte, unless somebody means to change it.

`python tests/unit/test_tool_result_golden.py` prints what differs and writes the texts anew.
"""

import functools
import json
import random
import sys
from itertools import islice
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from langchain_ctxwin.errors import ConfigError
from support.goldens import FOLDER, difference, store, stored
from support.tool_runs import last_cursor, next_cursor, pages
from support.walking import guard_of

STORED = FOLDER / "tool_results.json.xz"
MOST_PAGES = 3
WORDS = ("error", "login", "page", "slow", "table", "price", "room", "guest", "order", "failed", "again", "after",
         "limit", "because", "refund", "total")  # fmt: skip
STATES = ("open", "closed", "draft")


def _prose(rng, count):
    sentences = (
        " ".join(rng.choices(WORDS, k=rng.randint(4, 14))).capitalize() + "."
        for _ in range(count)
    )
    return " ".join(sentences)


def _issues(rng, count):
    rows = [
        {
            "id": rng.getrandbits(40),
            "state": rng.choice(STATES),
            "title": _prose(rng, 1),
            "url": f"https://tracker.example/issues/{at}",
            "user": {
                "login": rng.choice(WORDS),
                "id": at % 9,
                "avatar_url": f"https://tracker.example/{at}.png",
            },
            "created_at": f"2024-05-{at % 28 + 1:02}T10:00:00Z",
            "body": _prose(rng, 12) if at % 3 else None,
            "labels": [
                {"name": word, "color": "f00"} for word in rng.sample(WORDS, at % 4)
            ],
            "locked": False,
            "ratio": rng.random(),
        }
        for at in range(count)
    ]
    return {
        "total_count": count,
        "note": "",
        "page": {"number": 1, "next": None},
        "items": rows,
    }


def _csv(rng, count):
    lines = (
        f"{at},{rng.choice(WORDS)},{rng.random():.3f},{rng.choice(STATES)}"
        for at in range(count)
    )
    return "\n".join(["id,name,score,state", *lines])


def _log(rng, count):
    return "".join(
        f"2024-05-31T10:{at % 60:02}:{at % 59:02}Z {rng.choice(('INFO', 'WARN', 'ERROR'))} [{rng.choice(WORDS)}] "
        f"request {at} took {rng.randint(1, 900)} ms\n"
        for at in range(count)
    )


def _article(rng, count):
    return "\n\n".join(
        f"## Part {at}\n\n{_prose(rng, 9)}\n\n{_prose(rng, 5)}" for at in range(count)
    )


def _results(rng):
    """Results of every form, each large."""
    count = 40
    yield f"issues {count}", json.dumps(_issues(rng, count), indent=2)
    yield f"list {count}", json.dumps(_issues(rng, count)["items"])
    yield f"csv {count}", _csv(rng, count * 4)
    yield f"log {count}", _log(rng, count * 4)
    yield f"article {count}", _article(rng, count // 4)
    yield (
        f"map {count}",
        json.dumps(
            {
                f"{word}_{at}": _prose(rng, 3)
                for at in range(count)
                for word in WORDS[:2]
            }
        ),
    )
    yield (
        "document",
        json.dumps(
            {"id": "doc-1", "title": "Notes", "pages": 3, "text": _prose(rng, 300)}
        ),
    )
    yield (
        "nested",
        json.dumps(
            {
                "data": {
                    "node": {
                        "id": 7,
                        "edges": _issues(rng, 30)["items"],
                        "more": {"a": [1, 2]},
                    }
                }
            }
        ),
    )
    yield (
        "irregular",
        json.dumps(
            [{WORDS[at % 16]: at, "deep": {"x": [at] * 40}} for at in range(90)]
        ),
    )
    yield "unbroken", "".join(rng.choices("0123456789abcdef", k=20_000))
    yield "wide", "退款政策规定必须在三十天内提出申请。订单总计一百元。" * 200
    yield (
        "image",
        [
            {"type": "text", "text": json.dumps(_issues(rng, 30)["items"])},
            {"type": "image", "base64": "iVBORw0KGgo=" * 40, "mime_type": "image/png"},
        ],
    )


RESULTS = dict(_results(random.Random(7)))  # noqa: S311  # data, not secrets
SETTINGS = {
    "plain": {},
    "rows": {"page_rows": 7},
    "fields": {"fields": ("id", "items[].state", "title", "nowhere")},
    "one view": {"pagination": False},
    "beginnings": {"extraction": False},
    "one beginning": {"extraction": False, "pagination": False},
    "whole fields": {"projection": False},
}
QUESTIONS = {
    "search": {"contains": "refund"},
    "search rare": {"contains": "Issues/3"},
    "no match": {"contains": "xyzzy"},
    "everything": {"fields": ["*"]},
    "chosen": {"fields": ["user.login", "id", "body"]},
    "search chosen": {"contains": "closed", "fields": ["id", "state"]},
}


def _shown(result, settings, budget, question):
    """The first view of a result and the pages that follow, or those that answer a question."""
    guard = guard_of(max_tokens=budget, **SETTINGS[settings])
    found = guard.output(
        result, "rows", {"q": "which login failed, and what was the refund?"}
    )
    text = found if isinstance(found, str) else json.dumps(found)
    if question is None:
        return [text, *islice(pages(guard, text), 1, MOST_PAGES)]
    cursor = last_cursor(text) or next_cursor(text)
    if not cursor:
        return []
    asked = QUESTIONS[question]
    try:
        first = guard.read(cursor, **asked)
    except ConfigError as error:
        return [str(error)]
    return list(islice(pages(guard, first, **asked), MOST_PAGES))


def _cases():
    """Settings and a budget, with the questions that are asked then."""
    yield "plain", 1_000, (None, *QUESTIONS)
    yield from ((settings, 300, (None,)) for settings in SETTINGS)


def _parts(result):
    """What is shown of a result, by settings, budget and question; pages apart by a form feed."""
    return {
        f"{settings}, {budget} tokens, {question or 'first view'}": "\n\f\n".join(
            _shown(result, settings, budget, question)
        )
        for settings, budget, questions in _cases()
        for question in questions
    }


@functools.cache
def _stored_results():
    return stored(STORED)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_shown_as_it_was(name):
    difference_now = difference(name, _stored_results()[name], _parts(RESULTS[name]))
    assert not difference_now, difference_now


if __name__ == "__main__":
    store(STORED, {name: _parts(result) for name, result in RESULTS.items()})
