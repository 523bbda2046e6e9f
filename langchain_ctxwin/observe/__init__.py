"""What the package lets others see of its work: how close its counts are."""

from langchain_ctxwin.observe.tracks import Accuracy
from langchain_ctxwin.observe.validation import Validator, Verdict

__all__ = ["Accuracy", "Validator", "Verdict"]
