"""Regret: how much less probable a language model finds the recorded next action, given a request instead of all of it.

    recorded answer  --all that came before it-->  model  --nats per token-->
                     --the request of a policy-->  model  --nats per token-->  the difference is the regret

Nothing is generated, and nobody judges: the model reads what was recorded. llama.cpp runs it (extra `reader`); a small
model reads worse than yours does, so that only differences between requests on the same steps count.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import accumulate
from math import fsum
from pathlib import Path
from typing import Any

import httpx
from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.provider_blocks import compact_json
from langchain_ctxwin.core.tokens import readable_text
from langchain_ctxwin.core.tool_schemas import parameter_names, tool_definition
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.replay.playing import (
    Policy,
    Sent,
    commands,
    needed_values,
    replay,
)
from langchain_ctxwin.replay.reading import Conversation
from langchain_ctxwin.util.log import aligned

CONTEXT_TOKENS = 20_480  # what the model holds: a whole history, a prompt and an answer
# of a history that is read whole: 14,000 tokens, some minutes on one core
MOST_HISTORY_CHARS = 50_000
MOST_REPLY_CHARS = 2_500  # of an answer: longer ones are whole files
# the longest wait for one answer: a busy core reads ten tokens a second
READ_SECONDS = 3_600.0
CERTAIN = 1e6  # added to the score of the token that comes next: no other can be chosen
LEAST_LOG_PROBABILITY = -104.0  # where single precision ends
# half of them need a value of the far past, where there are any
STEPS_PER_CONVERSATION = 3
FAR_MESSAGES = 6  # last seen longer ago than two calls with their results and what was said between
ALL, ARGUMENTS, FAR = GROUPS = ("all", "arguments", "far values")

MARGIN_NATS = 0.05  # a token: a request that makes it by less than a twentieth less probable is as good as all of it
LEAST_CONVERSATIONS = 8  # fewer say nothing of others
CONFIDENCE, RESAMPLES = 0.95, 2_000
HEADING = {"system": "System", "human": "User", "ai": "Assistant", "tool": "Tool"}
ANSWER = "### Assistant\n"


# ---- figures --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """How probable one answer is, given one request, in nats; lower is more probable."""

    policy: str
    """Empty for all of the history."""

    conversation: str
    step: int
    prompt_tokens: int
    nats: Mapping[str, tuple[float, int]]
    """The sum and the number of tokens, of each group that the answer has tokens of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """Nats a token that an answer is less probable given a request than given the history, over some conversations."""

    nats: float
    low: float
    high: float
    """The mean, and its 95 % interval by resampling conversations."""

    steps: int
    conversations: int
    prompt_tokens: float
    """Mean size of the prompts, by the model's own tokens."""

    def verdict(self) -> str:
        """Return what the interval says; a request is as good as the history only when all of it is below the margin.

        Examples:
            >>> Regret(
            ...     nats=0.01,
            ...     low=-0.02,
            ...     high=0.04,
            ...     steps=60,
            ...     conversations=30,
            ...     prompt_tokens=900.0,
            ... ).verdict()
            'not distinguishable from the full history (margin 0.05)'
        """
        if self.conversations < LEAST_CONVERSATIONS:
            return f"no verdict: {self.conversations} conversations, {LEAST_CONVERSATIONS} are the least"
        if self.high < MARGIN_NATS:
            return f"not distinguishable from the full history (margin {MARGIN_NATS:g})"
        if self.low > 0:
            return "worse than the full history"
        return f"no verdict: the spread reaches {self.high:.2f}, the margin is {MARGIN_NATS:g}"


def regret(reads: Sequence[Read], policy: str, group: str = ALL) -> Regret | None:
    """Return the regret of a policy, over the steps at which both its request and the history were read.

    None when no answer has tokens of the group.
    """
    whole = {
        (read.conversation, read.step): read.nats for read in reads if not read.policy
    }
    sums: dict[str, tuple[float, int]] = {}
    sizes = list[int]()
    for read in reads:
        full = whole.get((read.conversation, read.step), {})
        if read.policy != policy or group not in read.nats or group not in full:
            continue
        nats, tokens = sums.get(read.conversation, (0.0, 0))
        sums[read.conversation] = (
            nats + read.nats[group][0] - full[group][0],
            tokens + read.nats[group][1],
        )
        sizes.append(read.prompt_tokens)
    if not sums:
        return None
    nats, low, high = _interval(list(sums.values()))
    return Regret(
        nats=nats,
        low=low,
        high=high,
        steps=len(sizes),
        conversations=len(sums),
        prompt_tokens=fsum(sizes) / len(sizes),
    )


def _interval(sums: Sequence[tuple[float, int]]) -> tuple[float, float, float]:
    """The mean of sums over counts, and its interval by resampling them, always the same."""
    rng = random.Random(0)  # noqa: S311  # a reproducible interval, not a secret

    def mean(chosen: Sequence[tuple[float, int]]) -> float:
        return fsum(nats for nats, _ in chosen) / sum(tokens for _, tokens in chosen)

    means = sorted(mean(rng.choices(sums, k=len(sums))) for _ in range(RESAMPLES))
    cut = int((1 - CONFIDENCE) / 2 * RESAMPLES)
    return mean(sums), means[cut], means[-1 - cut]


def table(reads: Sequence[Read], policies: Sequence[str]) -> Iterator[str]:
    """Yield a row for each policy, beneath what the columns mean."""
    rows: list[tuple[str, ...]] = [("policy", "steps", "prompt", *GROUPS, "verdict")]
    for policy in policies:
        regrets = [regret(reads, policy, group) for group in GROUPS]
        if every := regrets[0]:
            cells = [
                "-"
                if one is None
                else f"{one.nats:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"
                for one in regrets
            ]
            rows.append(
                (
                    policy,
                    f"{every.steps}",
                    f"{every.prompt_tokens:,.0f}",
                    *cells,
                    every.verdict(),
                )
            )
    conversations = len({read.conversation for read in reads})
    yield f"regret over the full history in nats a token, {CONFIDENCE:.0%} intervals over {conversations} conversations"
    yield from aligned(rows)


# ---- steps of a conversation ----------------------------------------------------------------------------------------


def read_conversation(
    reader: LanguageModel,
    conversation: Conversation,
    policies: Sequence[Policy],
    window: int,
) -> Iterator[Read]:
    """Read recorded answers of one conversation behind all of the history, and behind the request of each policy.

    Answers are taken once something has to leave under each policy, and while the history is short enough to be read.

    Args:
        reader: the model.
        conversation: the recording.
        policies: whose requests are read.
        window: context window in tokens; a quarter of it is kept for the answer.
    """
    conversation = _readable(conversation)
    requests = {one.name: _requests(conversation, one, window) for one in policies}
    chosen = _chosen(conversation, set.intersection(*map(set, requests.values())))
    whole: Any = {at: conversation.messages[:at] for at, _ in chosen}
    tools = _tools(conversation.tools)
    # one after the other, so that a request that grows is read once
    for name, request_at in {"": whole, **requests}.items():
        for at, far in chosen:
            reply = conversation.messages[at]
            prompt = [tools, *map(block, request_at[at]), ANSWER]
            surprise = reader.surprise(
                prompt, readable_text(reply), {ARGUMENTS: _arguments(reply), FAR: far}
            )
            if surprise is not None:
                yield Read(
                    policy=name,
                    conversation=conversation.name,
                    step=at,
                    prompt_tokens=surprise.prompt_tokens,
                    nats=surprise.nats,
                )


def _readable(conversation: Conversation) -> Conversation:
    """The conversation up to where its history becomes too long to be read whole."""
    ends = accumulate(len(readable_text(message)) for message in conversation.messages)
    # with the answer to the longest
    stop = sum(end <= MOST_HISTORY_CHARS for end in ends) + 1
    return replace(conversation, messages=conversation.messages[:stop])


def _requests(
    conversation: Conversation, policy: Policy, window: int
) -> dict[int, Sequence[AnyMessage]]:
    """The requests that were sent and lack something of the history, by the position of their answer."""
    sent, begins = list[Sent](), conversation.begins
    replay(conversation, policy, window, heard=sent.append)
    ids = [message.id for message in conversation.messages[begins:]]
    return {
        one.history + begins: one.request
        for one in sent
        if one.fits
        and not {message.id for message in one.request}.issuperset(ids[: one.history])
    }


def _chosen(
    conversation: Conversation, positions: Iterable[int]
) -> list[tuple[int, list[str]]]:
    """Positions of answers with calls, and what they need of the far past: half need something, if so many do."""
    texts = list(map(readable_text, conversation.messages))
    answers = list[tuple[int, list[str]]]()
    for at in sorted(positions):
        reply: Any = conversation.messages[at]
        if _arguments(reply) and len(texts[at]) <= MOST_REPLY_CHARS:
            near = "\n".join(texts[max(0, at - FAR_MESSAGES) : at])
            needed = needed_values(reply, texts[:at])
            answers.append((at, [value for value in needed if value not in near]))
    random.Random(conversation.name).shuffle(answers)  # noqa: S311  # a reproducible sample
    far = [answer for answer in answers if answer[1]]
    near_only = [answer for answer in answers if not answer[1]]
    half = -(-STEPS_PER_CONVERSATION // 2)
    chosen = [*far[:half], *near_only, *far[half:]]
    return sorted(chosen[:STEPS_PER_CONVERSATION])


def _tools(tools: Sequence[Any]) -> str:
    """The tools by their names and parameters: they are the same in all prompts."""
    named = []
    for tool in map(tool_definition, tools):
        function = tool.get("function", tool) if isinstance(tool, Mapping) else {}
        named.append(
            f"{function.get('name')}({', '.join(sorted(parameter_names([tool])))})"
        )
    return f"Tools: {'; '.join(named)}\n\n" if named else ""


def block(message: AnyMessage) -> str:
    """A message as the model reads it, whoever asks."""
    return (
        f"### {HEADING.get(message.type, message.type)}\n{readable_text(message)}\n\n"
    )


def _arguments(reply: AnyMessage) -> list[str]:
    calls = (
        [compact_json(call["args"]) for call in reply.tool_calls]
        if isinstance(reply, AIMessage)
        else []
    )
    return calls or commands(reply.text)


# ---- the model ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """How a text stands behind a prompt."""

    prompt_tokens: int
    nats: Mapping[str, tuple[float, int]]
    """The sum and the number of tokens: of all, and of each part that has some."""

    is_first_choice: bool
    """True when the model, taking the most probable token each time, would have written just this."""


class LanguageModel:
    """A model that llama.cpp runs in this process, for the nats of a text behind a prompt.

    It has to write the reply token by token, and llama.cpp reports how probable each was to it. A prompt is a list of
    texts that are cut into tokens one by one, so that prompts that begin alike have the same tokens there, which are
    read once.
    """

    def __init__(
        self, model: str | Path, *, context_tokens: int = CONTEXT_TOKENS
    ) -> None:
        """Load a model.

        Args:
            model: a file in the GGUF format.
            context_tokens: most tokens of a prompt with its answer.

        Raises:
            ConfigError: `xllamacpp` is missing, or it cannot load the file.
        """
        try:
            llama: Any = import_module("xllamacpp")
        except ImportError as error:
            raise ConfigError(
                f"a reader needs llama.cpp ({error}): pip install 'langchain-ctxwin[reader]'"
            ) from error
        settings = llama.CommonParams()
        settings.model.path = str(model)
        settings.n_ctx, settings.n_parallel = context_tokens, 1
        settings.n_gpu_layers, settings.warmup, settings.verbosity = 0, False, -1
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        # layers that look back a short way keep all, so that a reply can be taken back from them
        settings.swa_full = True
        try:
            self._server = llama.Server(settings)
        except RuntimeError as error:
            raise ConfigError(
                f"--reader {model}: llama.cpp cannot load it with {context_tokens:,} tokens of context: {error}"
            ) from error
        self._http = httpx.Client(
            base_url=self._server.listening_address,
            timeout=READ_SECONDS,
            trust_env=False,
            # no connection outlives its request: nobody closes a reader
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self.context_tokens = context_tokens
        self._first = [token["id"] for token in self._tokens("", add_special=True)]

    def surprise(
        self, prompt: Sequence[str], reply: str, groups: Mapping[str, Sequence[str]]
    ) -> Surprise | None:
        """Return the nats of a reply behind a prompt: all, and those of some of its parts.

        Args:
            prompt: texts that stand before the reply.
            reply: what is read behind them.
            groups: parts of the reply, by name; of each the first place counts.

        Returns None for what the context cannot hold.
        """
        before = [*self._first]
        for text in prompt:
            before += [token["id"] for token in self._tokens(text)]
        tokens = self._tokens(reply)
        if not tokens or len(before) + len(tokens) > self.context_tokens:
            return None
        read = self._read(before, [token["id"] for token in tokens])
        ends = _ends(tokens)
        places = [
            (begin, end, -max(LEAST_LOG_PROBABILITY, one["logprob"]))
            for begin, end, one in zip([0, *ends], ends, read, strict=False)
            if one
        ]
        nats_of = {ALL: (fsum(nats for *_, nats in places), len(places))}
        for name, parts in groups.items():
            begins = ((reply.find(part), len(part)) for part in parts)
            spans = [(at, at + length) for at, length in begins if at >= 0]
            chosen = [
                nats
                for begin, end, nats in places
                if any(begin < stop and at < end for at, stop in spans)
            ]
            if chosen:
                nats_of[name] = fsum(chosen), len(chosen)
        is_first_choice = all(
            one["top_logprobs"][0]["id"] == one["id"] for one in read if one
        )
        return Surprise(
            prompt_tokens=len(before), nats=nats_of, is_first_choice=is_first_choice
        )

    def _tokens(self, text: str, *, add_special: bool = False) -> list[dict[str, Any]]:
        wanted = {
            "content": text,
            "add_special": add_special,
            "parse_special": False,
            "with_pieces": True,
        }
        tokens: list[dict[str, Any]] = self._post("/tokenize", wanted)["tokens"]
        return tokens

    def _read(
        self, before: Sequence[int], tokens: Sequence[int]
    ) -> list[dict[str, Any]]:
        """The log probabilities of each token behind others; empty for one that ends inside a character."""
        every = list[dict[str, Any]]()
        for place, token in enumerate(tokens):
            wanted = {
                "prompt": [*before, *tokens[:place]],
                "logit_bias": [[token, CERTAIN]],
                "n_predict": 1,
                "n_probs": 1,
                "samplers": [],
                "temperature": 0,
            }
            probabilities = self._post("/completion", wanted).get(
                "completion_probabilities"
            )
            every.append(probabilities[0] if probabilities else {})
        return every

    def _post(self, path: str, wanted: Mapping[str, Any]) -> Any:
        answer = self._http.post(path, json=wanted)
        if answer.is_error:
            raise ConfigError(f"llama.cpp refused {path}: {answer.text[:200]}")
        return answer.json()


def _ends(tokens: Sequence[Mapping[str, Any]]) -> list[int]:
    """Where in the text each token ends, in characters; a part of one has bytes as its piece."""
    pieces = (token["piece"] for token in tokens)
    every = accumulate(
        piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces
    )
    return [len(raw.decode("utf-8", "ignore")) for raw in every]
