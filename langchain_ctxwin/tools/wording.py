"""What does a request ask for, beside the words it is phrased with? Its own words, and the kinds of values it holds."""

from __future__ import annotations

import re

_PHRASES = """
able assist assistance curious dear finally first give good great hello help hey hi hope imagine interested interesting
kind kindly know lastly let like love may maybe might must need next nice ok okay please possible second shall sure tell
thank thanks think third try trying want wanted wish wonder wondering
"""
"""Words that requests are phrased with; whole words, because "interested" says nothing and "interest" does."""

_PHRASING = re.compile(rf"\b(?:{'|'.join(_PHRASES.split())})\b", re.IGNORECASE)

_MONTH = "(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)(?:uary|ruary|ch|il|ust|ember|tember|ober)?"
_DAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day|to(?:day|morrow|night)|yesterday|weekend"
_KINDS = {
    "date": rf"\b\d{{1,4}}\s?[-/.]\s?\d{{1,2}}\s?[-/.]\s?\d{{1,4}}\b|\b{_MONTH}\b\.?\s*\d"
    rf"|\d(?:st|nd|rd|th)?\s+(?:(?:of|this)\s+)*{_MONTH}\b|\b(?:{_DAY})\b",
    "time": r"\b\d{1,2}:\d\d\b|\b\d{1,2}\s?[ap]\.?m\b",
    "email": r"\S@\w[\w-]*\.\w",
    "url": r"https?://|\bwww\.",
    "amount": r"[$€£¥₹]\s?\d|\d\s?(?:[$€£¥₹]|(?:dollars|euros|usd|eur|pounds|yen)\b)",
    "rate": r"\d\s?(?:%|percent)",
    "list array": r"\[[^\[\],]*,",
    "file path": r"\b[a-z]:\\|(?<![\w/])/\w[\w.]*/|\w\.(?:csv|docx?|jpe?g|json|md|pdf|png|py|txt|xlsx?)\b",
}
"""How tools call their parameters, by what their values look like; most requests state a value and not its kind."""

_VALUES = [(words, re.compile(pattern, re.IGNORECASE)) for words, pattern in _KINDS.items()]


def without_phrasing(text: str) -> str:
    """Return a request without the words that any request could have.

    Example:
        >>> without_phrasing("Hi, I would like to know the interest rate please").split()
        [',', 'I', 'would', 'to', 'the', 'interest', 'rate']
    """
    return _PHRASING.sub(" ", text)


def kinds_of_values(text: str) -> str:
    """Return words for the kinds of values in a request, as parameters are called.

    Example:
        >>> kinds_of_values("Weather in Oslo on 3 May at 6 pm")
        'date time'
    """
    return " ".join(words for words, pattern in _VALUES if pattern.search(text))
