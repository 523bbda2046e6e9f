"""What the package lets others see of its work: how close its counts are, and how good its requests were."""

from langchain_ctxwin.observe.gates import DEFAULT_GATES, Gate, QualityReport, RequestRecord, quality_report
from langchain_ctxwin.observe.validation import Accuracy, Validator, Verdict

__all__ = [
    "DEFAULT_GATES",
    "Accuracy",
    "Gate",
    "QualityReport",
    "RequestRecord",
    "Validator",
    "Verdict",
    "quality_report",
]
