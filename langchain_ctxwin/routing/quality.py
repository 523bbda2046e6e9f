"""Quality: the chance that a model answers a request well, by the request's words and by recorded outcomes."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, ValidationError

from langchain_ctxwin.errors import ConfigError, brief, expect
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.routing.text_weights import Sample, TextWeights, read_part, shipped, trained
from langchain_ctxwin.util.background import ForkSafeLock, Worker
from langchain_ctxwin.util.files import SharedFile, place
from langchain_ctxwin.util.memo import memo_of_texts

# Outcomes that weigh as much as what the words of a text say: a share of ten is known to about 15 points.
PRIOR_TRIALS = 10.0
# Trials after which older ones count for less, so that a model that changed under its name is judged anew: a share of
# successes is then known to about 3 points.
MAX_TRIALS = 200.0
MAX_CELLS = 4096  # pairs of a bucket and a model: fifty models in every bucket; about half a megabyte
MAX_NAME_CHARS = 256  # of a bucket or a model, so that the file stays small; far above any name in use
FILE_VERSION = 1
FLUSH_SECONDS = 5.0  # a file of this size takes milliseconds, on a network folder perhaps a second

LEVELS = ("easy", "medium", "hard")
LEVELS_KEPT = 256  # texts, at most a megabyte: a route asks for the level twice, a conversation again and again

_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_OPTION = re.compile(r"^[ \t]*\(?([B-D])[.):][ \t]", re.MULTILINE)
_CODE = re.compile(
    r"```|^[ \t]*(?:def|class|import|from|return|public|private|static|void|func|fn|const|let|var|#include)\b"
    r"|[{};][ \t]*$"
    r"|[=!<>]=|=>|->|::|\w\(\w*\)|\b(?:function|algorithm|python|javascript|java|sql|regex|json|compile|traceback"
    r"|bug|stack trace|unit tests?|api)\b",
    re.MULTILINE,
)
_MATH = re.compile(
    r"\d+(?:[.,]\d+)*|[=+*/^<>≤≥≠∑∫√∞∈∀∃]|\\[a-z]+|\b(?:prove|proof|theorem|equations?|integral|derivative"
    r"|matrix|vector|probability|percent|ratio|average|sum|product|total|how (?:many|much)|half|twice|double|times"
    r"|per|solve|calculate|compute)\b"
)
CODE_MARKERS, MATH_MARKERS = 6, 12  # from which a text is taken for code, or for mathematics


class Quality:
    """Estimates the chance of a good answer per model; thread-safe, about a millisecond a request.

    Three layers: words, signs and phrases of the request, by a logistic model of public outcomes of a weaker and
    a stronger model, or by `fit` from your own; between those two ends a model stands by its `strength`; and counted
    outcomes per model and task bucket shift the chance of that bucket.

    Args:
        path: JSON file for the outcomes, shared between processes; in memory only by default.
        weights: from `fit(...).weights` or `loaded`; by default the ones that come with the package.
        clock: when an outcome was recorded.

    Raises:
        ConfigError: the path names no place, or the weights are of another type.

    Examples:
        >>> quality = Quality()
        >>> small, large = quality.chances("Hello", ["small", "large"], strengths=[0.0, 1.0])
        >>> small < large
        True
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        weights: TextWeights | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._shipped = shipped()  # read now, because requests are routed on event loops
        expect(weights, TextWeights | None, "weights", "TextWeights, from `Quality().fit(samples).weights`")
        self.weights = weights or self._shipped
        self.outcomes = Outcomes(path, clock=clock)

    def bucket(self, text: str, *, needs_tools: bool = False) -> str:
        """Return the kind of task and its level, under which outcomes are counted, e.g. `math/hard`.

        The level is that whose texts the package's own weights give the most similar chance to.
        """
        expect(text, str, "text", "the request as a string")
        kind = "tools" if needs_tools else kind_of(text)
        return f"{kind}/{_level(kind, read_part(text))}"

    def chances(
        self, text: str, models: Sequence[str], *, strengths: Sequence[float], needs_tools: bool = False
    ) -> list[float]:
        """Return each model's chance of a good answer, between 0 and 1.

        Args:
            text: the request: the latest user message.
            models: their names, as outcomes are recorded for them.
            strengths: where each stands between the weakest (0) and the strongest (1), e.g. by price.
            needs_tools: whether the request is answered with tools.

        Raises:
            ConfigError: not one strength from 0 to 1 per model.
        """
        if len(models) != len(strengths) or not all(0 <= strength <= 1 for strength in strengths):
            raise ConfigError(f"{len(models)} models with strengths {list(strengths)}: give each a number from 0 to 1")
        bucket = self.bucket(text, needs_tools=needs_tools)
        logits, usual_logits, chances = self.weights.logits(text), self._usual(bucket), []
        for model, strength in zip(models, strengths, strict=True):
            # The recorded outcomes move the log-odds away from what the texts of this bucket usually say.
            usual, known = self.weights.of_model(usual_logits, model, strength), self.outcomes.of(bucket, model)
            share = (PRIOR_TRIALS * _chance(usual) + known.successes) / (PRIOR_TRIALS + known.trials)
            shift = math.log(share / (1 - share)) - usual
            chances.append(_chance(self.weights.of_model(logits, model, strength) + shift))
        return chances

    def record(self, bucket: str, model: str, *, success: bool) -> None:
        """Count one outcome of a model in a bucket; see `Outcomes.record`."""
        self.outcomes.record(bucket, model, success=success)

    def observe(self, bucket: str, model: str, *, strength: float, failed: bool) -> None:
        """Count an answer that nobody judged: one that failed by itself lowers the chance, any other one leaves it.

        Of n answers of which f failed, the chance in this bucket becomes what it was times 1 - f / (10 + n). An answer
        fails that was refused, cut off, empty, or asked for again; `strength` as for `chances`.
        """
        as_expected = _chance(self.weights.of_model(self._usual(bucket), model, strength))
        self.outcomes.add(bucket, model, Count(successes=0.0 if failed else as_expected, trials=1.0))

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until recorded outcomes are saved, or could not be; false when that takes longer."""
        return self.outcomes.flush(timeout_seconds)

    def fit(self, samples: Iterable[Sample]) -> Self:
        """Return a quality with weights made from these samples, which counts outcomes where this one does.

        Needs a few hundred texts with the outcomes of two models or more; ten thousand take some seconds.

        Raises:
            ConfigError: a sample is not valid, or there are not two models and two texts.
        """
        fitted = type(self)(weights=trained(samples, bucket=self.bucket))
        fitted.outcomes = self.outcomes
        return fitted

    def _usual(self, bucket: str) -> Sequence[float]:
        return self.weights.usual.get(bucket, self.weights.base)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Outcomes of one model on one kind of task."""

    successes: _Number = 0.0
    trials: _Number = 0.0
    at: _Number = 0.0  # when the latest was recorded, in seconds since the epoch

    def plus(self, other: Count) -> Count:
        """Return both together, scaled down to `MAX_TRIALS` when there are more."""
        successes, trials = self.successes + other.successes, self.trials + other.trials
        share = min(1.0, MAX_TRIALS / trials) if trials else 1.0
        return Count(successes=successes * share, trials=trials * share, at=max(self.at, other.at))


Counts = Mapping[tuple[str, str], Count]  # by bucket and model


class Outcomes:
    """Counts successes and trials per model and task bucket; thread-safe and bounded.

    With a path, counts are kept in a JSON file that processes may share: each adds what it recorded itself, so none
    loses what another saved. It is read when the object is made and written in a background thread after `record`. Call
    `flush` before the program ends. Trouble with the file is logged and never raised: counting goes on in memory.

    Raises:
        ConfigError: the path names no place, or a file that holds something else, which is never written.

    Examples:
        >>> outcomes = Outcomes()
        >>> outcomes.record("math/hard", "small", success=True)
        >>> outcomes.of("math/hard", "small").trials
        1.0
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, clock: Clock = time.time) -> None:
        self._file = None if path is None else _file_of(place(path))
        if self._file:
            self._file.require_ours()
        self._clock = clock
        self._saved: Counts = (self._file.read() if self._file else None) or {}
        self._saving: Counts = {}  # these three are replaced as a whole, never changed
        self._new: Counts = {}
        self._lock = ForkSafeLock()
        self._worker = Worker("ctxwin-outcomes")

    def record(self, bucket: str, model: str, *, success: bool) -> None:
        """Count one outcome; returns at once, also on an event loop.

        Raises:
            ConfigError: a name is empty or too long, or `success` is no boolean; nothing was counted.
        """
        for what, name in (("bucket", bucket), ("model", model)):
            if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
                raise ConfigError(f"{what}={name!r:.80}: give a name of 1 to {MAX_NAME_CHARS} characters")
        if not isinstance(success, bool):
            raise ConfigError(f"success={success!r}: give True or False")
        self.add(bucket, model, Count(successes=float(success), trials=1.0))

    def add(self, bucket: str, model: str, count: Count) -> None:
        """Count outcomes as of now; returns at once, also on an event loop."""
        one = {(bucket, model): replace(count, at=self._clock())}
        with self._lock.held:
            if self._file is None:
                self._saved = added(self._saved, one)
                return
            self._new = added(self._new, one)
        try:  # in a thread: files must not be touched on an event loop; a task that waits saves this one too
            self._worker.submit(partial(self._save, self._file))
        except RuntimeError as error:  # the process may have no more threads, or is about to end
            self._file.not_saved(str(error))

    def of(self, bucket: str, model: str) -> Count:
        """Return what is known of a model on a kind of task: no trials when nothing is."""
        with self._lock.held:
            counts = (self._saved, self._saving, self._new)
        saved, saving, new = (one.get((bucket, model), _NONE) for one in counts)
        return saved.plus(saving).plus(new)

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until what was recorded is saved, or could not be; false when that takes longer. Blocks its thread."""
        return self._worker.flush(timeout_seconds)

    def _save(self, file: SharedFile[Counts]) -> None:
        """Save what is new; what fails is kept and tried again with the next outcome."""
        with self._lock.held:
            self._saving, self._new = self._new, {}
        saved = file.update(lambda stored: added(stored, self._saving))
        with self._lock.held:
            if saved is None:
                self._new = added(self._saving, self._new)
            else:
                self._saved = saved
            self._saving = {}


def added(one: Counts, other: Counts) -> Counts:
    """Return the sums per cell; of more than `MAX_CELLS` the ones that were heard of last."""
    both = {cell: one.get(cell, _NONE).plus(other.get(cell, _NONE)) for cell in {**one, **other}}
    newest = sorted(both, key=lambda cell: (both[cell].at, cell))[-MAX_CELLS:] if len(both) > MAX_CELLS else both
    return {cell: both[cell] for cell in newest}


def _file_of(path: Path) -> SharedFile[Counts]:
    """The file that keeps counts: bucket -> model -> count."""

    def write(counts: Counts) -> str:
        buckets: dict[str, dict[str, Any]] = {}
        for (bucket, model), count in counts.items():
            buckets.setdefault(bucket, {})[model] = asdict(count)
        return json.dumps({"version": FILE_VERSION, "outcomes": buckets}, indent=1, sort_keys=True)

    kind: Any = {"events": "models.outcomes", "key": "outcomes", "version": FILE_VERSION}
    return SharedFile(path, empty={}, read=_read, write=write, **kind)


def _read(content: bytes) -> tuple[Counts, str]:
    """What is valid in a file, and what is wrong with it."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        return {}, f"not JSON: {error}"
    is_known = isinstance(document, dict) and document.get("version") == FILE_VERSION
    table = document.get("outcomes") if is_known else None
    if not isinstance(table, dict):
        return {}, f"no outcomes of version {FILE_VERSION}"
    counts, invalid = dict[tuple[str, str], Count](), list[str]()
    for bucket, models in table.items():
        for model, value in models.items() if isinstance(models, dict) else [("", models)]:
            if count := _valid(bucket, model, value):
                counts[bucket, model] = count
            else:
                invalid.append(f"{bucket}.{model}")
    fault = f"{len(invalid)} invalid entries, the first is {brief(invalid[0])}" if invalid else ""
    return added(counts, {}), fault


def _valid(bucket: str, model: str, value: Any) -> Count | None:
    try:
        count = _COUNT.validate_python(value)
    except ValidationError:
        return None
    are_names = all(0 < len(name) <= MAX_NAME_CHARS for name in (bucket, model))
    return count if are_names and count.successes <= count.trials else None


_NONE = Count()
_COUNT = TypeAdapter(Count)


def kind_of(text: str) -> str:
    """Return the kind of a task by plain markers in its text: code, math, choice (of given options) or text."""
    read = read_part(text)
    code, math_signs = (sum(1 for _ in pattern.finditer(read.lower())) for pattern in (_CODE, _MATH))
    if code >= CODE_MARKERS or math_signs >= MATH_MARKERS:
        return "code" if code / CODE_MARKERS >= math_signs / MATH_MARKERS else "math"
    return "choice" if len(set(_OPTION.findall(read))) > 1 else "text"


@memo_of_texts(LEVELS_KEPT)
def _level(kind: str, text: str) -> str:
    usual, cheap = shipped().usual, shipped().logits(text)[0]
    return min(LEVELS, key=lambda level: abs(cheap - usual[f"{kind}/{level}"][0]))


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
