"""How are questions about rows worded, so that a person, a real model and the offline reader all understand them?"""

from __future__ import annotations

from langchain_ctxwin.demo.wording import Wording

QUESTIONS = {
    "find": "What is the `{field}` of the row whose `{key}` is `{value}`?",
    "count": "How many of all rows have `{value}` as their `{field}`?",
    "total": "Of the rows whose `{key}` is `{value}`: how many are there, and what is the sum of their `{field}`?",
    "text": "Read the whole `{field}` of the row whose `{key}` is `{value}`: how often does it say `{word}`?",
    "borrowed": "A colleague copied me the cursor `{cursor}`. What does read_more show for it?",
    "recall": "One last thing: what was your answer to my very first question?",
}
"""By kind; the text in braces is filled in, and read back by the offline reader."""


WORDING = Wording(QUESTIONS)
