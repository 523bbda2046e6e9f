"""`Request`: one request under one view, priced; what it costs, whether it fits, and what its thresholds are.

    what a caller hands over + Session (what is stored)  ->  Request  --shown_as(view)-->  another candidate

All sizes are tokens. A request is sent when its upper bound is within the limit; shares count most likely sizes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxwin.core.limits import ModelLimits, TokenBudget
from langchain_ctxwin.core.model_info import (
    CACHE_SECONDS,
    UNKNOWN,
    ModelInfo,
    Rules,
)
from langchain_ctxwin.core.pairing import (
    NOTE_KEY,
    Before,
    append_text,
    call_ids,
    note_message,
    unbound_before,
)
from langchain_ctxwin.core.provider_blocks import (
    ALL,
    MediaSize,
    block_message,
    digest,
    digests_in,
    hidden,
    is_compacted_by,
    sizes_of,
)
from langchain_ctxwin.core.record import RECORD_ID, record_text
from langchain_ctxwin.core.session import Json, Session
from langchain_ctxwin.core.settings import ContextSettings, portion
from langchain_ctxwin.core.sizing import (
    FIXED_REGIONS,
    Doubt,
    Regions,
    ReportedSize,
    SizeEstimate,
    Sizes,
)
from langchain_ctxwin.core.tool_schemas import ToolSet
from langchain_ctxwin.core.turns import (
    ANSWER_TEXT,
    MessageHistory,
    Price,
    Step,
    Steps,
    Turn,
    group_turns,
    last_user,
    runs,
    show_step,
    show_steps,
    split_steps,
)
from langchain_ctxwin.core.view import View, edit, message_id

Writer = Literal["", "inline", "background", "provider"]
"""How summaries are written: by nobody, within the step, beside it, or by the provider on demand, within an answer."""

IDLE = "compact_when_idle: the prompt cache is cold, and a compaction is near"
# Of the room: where an inline summary is written unless told; what follows it has to fit, too.
WRITTEN_SHARE = 0.95
PREPARED_SHARE = 0.8  # of the trigger: the latest that a summary is begun beside it
ON_DEMAND_SHARE = 0.9
"""Of the room: where a provider's own block is begun, which is written within one answer. Of one begun at 0.6 the half
of a window stays behind it, and all requests were billed a quarter more."""
KEPT_MESSAGES_SHARE = 0.5  # the most that a bound by number of messages leaves of them
LEAST_MESSAGES = 2  # a question and its answer
# Of what the history may take before it leaves: what the newest step and what is kept before it take together.
KEPT_WITH_NEWEST_SHARE = 0.5


class Need(NamedTuple):
    """How soon something has to leave a request, or a summary has to be begun, and why, in words."""

    level: Literal["ahead", "soft", "hard"]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request: what a caller hands over, what is stored, its sizes, whether it fits. It is never stored itself."""

    history: MessageHistory = field(repr=False)
    # the settings that held when the request began; whatever is decided about it goes by them
    settings: ContextSettings = field(repr=False)
    price: Price = field(repr=False)  # tokens of one message
    # size and digest of tool definitions
    price_tools: Callable[[Sequence[Any]], ToolSet] = field(repr=False)
    # how far these prices may be off before anything was reported; None where they are taken as they are
    doubt: Doubt | None = None
    is_exact: bool = False  # whether every count is exact
    # system prompt and leading system messages, merged
    system: SystemMessage | None = None
    system_tokens: int = 0
    # the tool definitions bound to the model
    tools: Sequence[Any] = field(default=(), repr=False)
    tool_tokens: int = 0  # price of those that are in the prompt from its beginning
    tools_digest: str = ""
    model: str = ""  # name of the model that the request goes to; empty when unknown
    # what is stated about the model's limits beside what was learned from refusals
    declared: ModelLimits = field(default_factory=ModelLimits)
    info: ModelInfo | None = None  # prices of the model, where who chose it knows them
    rules: Rules = UNKNOWN  # what its provider takes; what it would refuse is repaired
    # what of pictures and files one request may have: `max_bytes` and `max_images`
    media: Mapping[str, int | None] = field(default_factory=dict)
    # positions of explicit pins: messages marked through `pin`
    pins: frozenset[int] = frozenset()
    # seconds since the epoch; None where no decision depends on the time
    now_seconds: float | None = None
    # what a host named when it asked to compact: lines of the record with its words are kept first
    focus: str = ""
    # position up to which answers are shown without what their provider signed or encrypted: it took that no more
    unsealed: int = 0
    # name of the agent's tool that reads what was cut; empty when it has none
    recall: str = ""

    # the stored state of the conversation; of a candidate, that before it is applied
    session: Session
    sizing: Sizes = field(default_factory=Sizes, repr=False)
    # the limits of this request's model, as far as they are known or were learned
    limits: ModelLimits = field(default_factory=ModelLimits)
    input_limit: int = 0
    reserved_tokens: int = 0
    # what the request has to fit: the input limit; while a smaller one is planned after a refusal, less
    limit: int = 0
    # half of `keep` stays: the host asked for room, or the provider refused the request, and may state another limit
    # than that of its model
    needs_room: bool = False
    # position up to which reasoning is tied to what requests under the stored view no longer begin with
    unbound: int = 0
    # the last size that the provider reported for a request which this one extends; None when there is none
    last_report: ReportedSize | None = None

    view: View = field(default_factory=View)
    summary: str = ""
    pinned: tuple[Step, ...] = field(default=(), repr=False)
    steps: Steps = field(default=Steps(), repr=False)  # the history as it is shown

    @property
    def verbatim(self) -> frozenset[int]:
        """Positions of the explicit pins and of the current user message."""
        current = last_user(self.history.messages)
        return self.pins if current is None else self.pins | {current}

    def price_text(self, text: str) -> int:
        """Our estimate of a text as a message of its own; 0 for an empty one."""
        return self.price(SystemMessage(content=text)) if text else 0

    # ---- what is shown ----------------------------------------------------------------------------------------------

    def shown_as(self, view: View, summary: str | None = None) -> Request:
        """Return the request under another view, and with another summary where one is given."""
        summary = self.summary if summary is None else summary
        after = replace(self, view=view, summary=summary, last_report=None)
        hidden_media = after.hidden_media()
        if hidden_media != view.without_media:
            view = replace(view, without_media=hidden_media)
            after = replace(after, view=view)
        block, lead = after.block, after.lead
        begin = Before(
            rules=self.rules,
            unbound=after.left_unbound,
            unsealed=self.unsealed,
            message=block,
        )
        pinned = after.pinned_steps(begin)
        if block is not None or lead is not None:
            begin.message = block  # pins come later: see `assembled`
        steps = Steps(show_steps(self.history, after.start, view, begin))
        return replace(after, pinned=pinned, steps=steps)

    @property
    def start(self) -> int:
        """Position of the view's first message; the view must be valid for this history."""
        return max(self.history.first, self.view.start_index)

    @property
    def visible(self) -> list[int]:
        """Positions of what is shown: pins, then the history from the start of the view."""
        pins = (index for index in self.view.pinned if index < self.start)
        return [*pins, *range(self.start, len(self.history.messages))]

    @property
    def lead(self) -> int | None:
        """Position of the newest compaction by the provider in the view; nobody reads one that its provider refused."""
        for index in sorted(self.history.compacted, reverse=True):
            is_read = index >= max(self.start, self.unsealed)
            message = self.history.messages[index]
            if is_read and is_compacted_by(message, self.rules.provider):
                return index
        return None

    @cached_property
    def block(self) -> AIMessage | None:
        """What begins the request: the summary that this provider wrote on demand, where its history has none."""
        rules, block = self.rules, self.view.block
        if block is None or rules.compacts_itself or self.lead is not None:
            return None
        return block_message(block, rules.provider)

    @property
    def summary_text(self) -> str:
        """What of the summary stands above the record: nothing where the block of a provider says it."""
        is_in_block = self.block is not None and (self.view.block or {}).get("content")
        return "" if is_in_block else self.summary

    @cached_property
    def record(self) -> str:
        """The fenced text of summary and record as it is shown; empty when nothing left."""
        return record_text(self.summary_text, self.view.record)

    @property
    def left_unbound(self) -> int:
        """Position up to which this view leaves reasoning out; the stored view does so up to `unbound`."""
        rules, messages = self.rules, self.history.messages
        if self.view == self.session.view or not rules.binds_reasoning:
            return self.unbound
        if self.swaps_prefix:
            return max(self.unbound, self.start)
        return max(self.unbound, unbound_before(messages, len(messages), rules))

    @property
    def swaps_prefix(self) -> bool:
        """Whether a new block of the provider stands for just what preceded the rest under the stored view.

        Reasoning behind it then stays valid, because what is kept follows directly, as it was sent. That is not so of a
        question behind an answer that is blank or lacks results, or behind pins and record, with which it was sent as
        one message; nor where pins and record move, because they stood further on; nor where something is cut now.
        """
        view, old, start = self.view, self.session.view, self.start
        is_new = view.block != old.block and self.block is not None
        is_bound = self.rules.binds_reasoning
        is_whole = start == view.covered
        old_start = max(self.history.first, old.start_index)
        is_cut = (
            view.cleared - old.cleared or view.clamped.items() - old.clamped.items()
        )
        if is_cut or not (is_new and is_bound and is_whole and start > old_start):
            return False
        last, *following = self.history.messages[start - 1 : start + 1]
        if isinstance(last, AIMessage) and last.text != last.text.rstrip():
            return False  # the integration cuts these blanks where an answer ends a request
        is_answer = isinstance(last, AIMessage) and bool(last.text)
        record_at = self.record_index(old_start)
        if any(isinstance(m, HumanMessage) for m in following):
            return is_answer and not call_ids(last) and record_at < start
        return record_at <= start

    def record_index(self, start: int) -> int:
        """Return the position before which pins and record stand where a provider's own block begins the request.

        It is that of the question that was the newest message at the latest compaction, or behind a newest result;
        without a compaction it is the start of the view.
        """
        messages, stop = self.history.messages, self.session.number("since")
        if not 0 < stop <= len(messages):
            return start
        return stop - isinstance(messages[stop - 1], HumanMessage)

    def shown_media(self) -> dict[int, int]:
        """Return where pictures and files are in the view, and how many of the first of a message have no room.

        Explicit pins have room, and the last one of the newest message.
        """
        messages = self.history.messages
        visible = self.history.media.intersection(self.visible)
        shown = [
            index
            for index in sorted(visible)
            if message_id(messages, index) not in self.view.cleared
        ]
        free = (index for index in shown if index not in self.pins)
        media = [(index, size) for index in free for size in sizes_of(messages[index])]
        pinned = self.pins.intersection(shown)
        spared = MediaSize.of_all(messages[index] for index in pinned)
        return dict.fromkeys(shown, 0) | hidden(media, spared, self.media)

    def hidden_media(self) -> dict[str, int]:
        """How many pictures and files of a message are not shown: without room, or references alone."""
        messages = self.history.messages
        return {
            message_id(messages, index): ALL if digests_in(messages[index]) else gone
            for index, gone in self.shown_media().items()
            if gone or digests_in(messages[index])
        }

    @property
    def stop(self) -> int:
        """Position after the last message that is shown: that of the answer."""
        return self.steps.stop or self.start

    @property
    def messages(self) -> list[AnyMessage]:
        """The view: pinned messages and history as the model sees them, without the system message."""
        return [
            *(message for step in self.pinned for message in step.messages),
            *self.steps.messages,
        ]

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The history in the view, by turn and step, priced."""
        return group_turns(self.steps)

    @property
    def newest(self) -> Step | None:
        """The last step that is more than a note by this package or the application; None in an empty view."""
        filled_steps = (step for step in reversed(self.steps) if step.messages)
        for step in filled_steps:
            if step.size > 1 or NOTE_KEY not in step.messages[0].additional_kwargs:
                return step
        return None

    @property
    def newest_index(self) -> int:
        """Position of the newest step; in an empty view, of its start."""
        return self.newest.index if self.newest else self.start

    def assembled(self) -> list[AnyMessage]:
        """Return the messages of the request, the system message first.

        Pins precede the record because they change least: what precedes it stays cached when it is written anew.
        Before its own compaction a provider ignores everything, so pins and record come after that; behind one that it
        wrote on demand, after what followed it then.
        """
        history, settings = self.steps.messages, self.settings
        at, lead = self.start, self.lead
        if self.block is not None:
            at = self.record_index(at)
        elif lead is not None:
            at += 1
        leading = sum(len(step.messages) for step in self.steps if step.index < at)
        texts, notes = [settings.constraints_text, self.record], []
        if self.record and (self.block or settings.summary_placement == "user"):
            notes = [note_message(texts.pop(), RECORD_ID)]
        system = append_text(self.system, texts)
        return [
            *([system] if system else ()),
            *([self.block] if self.block else ()),
            *history[:leading],
            *(message for step in self.pinned for message in step.messages),
            *notes,
            *history[leading:],
        ]

    def pinned_steps(self, before: Before) -> tuple[Step, ...]:
        """The pinned messages before the start, by step; a finished question never looks open."""
        messages, steps = self.history.messages, list[Step]()
        view, start = self.view, self.start
        groups = [
            step
            for run in runs([index for index in view.pinned if index < start])
            for step in split_steps(messages, run[0], run[-1] + 1, self.price)
        ]
        behind = [*(group.index for group in groups[1:]), start]
        for group, following in zip(groups, behind, strict=False):
            step = show_step(group, view, before)
            is_over = isinstance(messages[following], HumanMessage)
            is_question = isinstance(messages[group.index], HumanMessage)
            if following > group.stop and is_question and is_over:
                key = f"{message_id(messages, group.index)}:answered"
                marker = AIMessage(content=ANSWER_TEXT, id=key)
                step = replace(step, messages=(*step.messages, marker))
                before.message = marker
            steps.append(step)
        return tuple(steps)

    # ---- what it costs ----------------------------------------------------------------------------------------------

    @cached_property
    def fixed_estimates(self) -> Regions:
        """What the counter says of everything but the history."""
        block = self.block
        summary_tokens = self.price_text(self.record)
        rules = self.settings.constraints_text
        return Regions(
            system_tokens=self.system_tokens,
            tool_tokens=self.tool_tokens,
            summary_tokens=summary_tokens + (self.price(block) if block else 0),
            pinned_tokens=self.price_text(rules)
            + sum(step.tokens for step in self.pinned),
            history_tokens=0,
        )

    @cached_property
    def estimates(self) -> Regions:
        """What the counter says."""
        return replace(self.fixed_estimates, history_tokens=self.steps.total_tokens)

    @cached_property
    def size(self) -> SizeEstimate:
        """The same in the provider's counts, as far as they are known, with bounds."""
        report, added = self.last_report, None
        if report:
            later = self.steps[self.steps.place(report.at) :]
            added = [step.tokens for step in later]
        return self.sizing.size(self.estimates, self.steps, added, self.doubt)

    @property
    def total_tokens(self) -> int:
        """The most likely size of the whole input, the reserve excluded."""
        return self.size.regions.total_tokens

    @property
    def history_tokens(self) -> int:
        """Tokens of the history in the view."""
        return self.size.regions.history_tokens

    @property
    def fixed_tokens(self) -> int:
        """Everything but the history."""
        return self.size.regions.fixed_tokens

    @property
    def upper_tokens(self) -> int:
        """Upper bound of the whole input: a request within the limit by this count may be sent."""
        return self.size.upper_tokens

    @property
    def lower_tokens(self) -> int:
        """Lower bound of the whole input."""
        return self.size.lower_tokens

    def text_tokens(self, text: str) -> int:
        """The size of a text as the regions count it; 0 for an empty one."""
        return round(self.sizing.ratio * self.price_text(text))

    @property
    def written_tokens(self) -> int:
        """The size of the summary, as a text and as a provider's own block."""
        block = self.price(self.block) if self.block else 0
        return self.text_tokens(self.summary_text) + round(self.sizing.ratio * block)

    @property
    def budget(self) -> TokenBudget:
        """What the fixed regions take of the input limit."""
        fixed = {name: getattr(self.size.regions, name) for name in FIXED_REGIONS}
        return TokenBudget(
            input_limit=self.input_limit, **fixed, reserved_tokens=self.reserved_tokens
        )

    @property
    def over_by(self) -> int:
        """Tokens by which the request may exceed its input limit, on the upper bound of its size, else 0."""
        return max(0, self.upper_tokens - self.input_limit)

    @cached_property
    def report(self) -> Json:
        """The `context_report`: tokens per region, which add up to `total_tokens`, limits, utilization."""
        regions = self.size.regions
        counted_by = "exact" if self.is_exact else "estimate"
        summary_tokens = regions.summary_tokens
        has_given_up = self.session.has_given_up(self.history.messages)
        if self.view.record.text:
            summary_tokens = min(summary_tokens, self.written_tokens)
        return {
            "context_window": self.limits.context_window
            or self.input_limit + self.reserved_tokens,
            "input_limit": self.input_limit,
            **asdict(regions),
            "summary_tokens": summary_tokens,
            "record_tokens": regions.summary_tokens - summary_tokens,
            "reserved_tokens": self.reserved_tokens,
            "total_tokens": self.total_tokens,
            "utilization": round(self.total_tokens / self.input_limit, 4),
            "over_by": self.over_by,
            "counted_by": "usage" if self.last_report else counted_by,
            "compactions": self.session.compactions,
            "dropped_turns": self.session.number("dropped_turns"),
            "clamped": self.clamped_newest(),
            "stopped": "summaries_ineffective" if has_given_up else "",
        }

    def clamped_newest(self) -> dict[str, list[int]]:
        """Return by id what is shown of pins, current user message and newest results that are cut, and of what.

        Both in tokens, as we estimate them.
        """
        messages, view, price = self.history.messages, self.view, self.price
        indexes, newest = [*self.verbatim], self.newest
        if newest:
            results = range(newest.index, newest.stop)
            indexes += [i for i in results if isinstance(messages[i], ToolMessage)]
        named = {message_id(messages, index): messages[index] for index in indexes}
        clamped = view.clamped.keys() | view.without_media.keys()
        return {
            name: [price(edit(message, name, view)), price(message)]
            for name, message in named.items()
            if name in clamped
        }

    @property
    def tied_to(self) -> str:
        """Fingerprint of what reasoning is tied to beside the view: model, prompt, tools, pictures that left."""
        media = json.dumps(sorted(self.view.without_media.items()))
        prompt = str(self.system.content) if self.system else ""
        return digest(prompt, self.tools_digest, self.model, media)

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the model, of everything that precedes the history, and of how the history is shown.

        A reported size is only comparable under the same one.
        """
        settings = self.settings
        return digest(
            self.tied_to,
            settings.constraints_text,
            self.record,
            settings.summary_placement,
            json.dumps(self.view.to_json()),
        )

    def digest_until(self, stop: int) -> str:
        """Fingerprint of the same and of the history before a position: of a request that another may extend."""
        return f"{self.digest}-{self.history.checksums[stop]}"

    # ---- its thresholds ---------------------------------------------------------------------------------------------

    def need(self, writer: Writer = "") -> Need | None:
        """Return what is due before or after the request is sent; None when nothing is.

        hard: it does not fit. soft: it fits, and is past a bound of the user's own, or its prompt cache went cold when
        its next compaction was near. ahead: the history nears what it may take, and summaries have a `writer`.
        """
        if not self.fits:
            sizes = f"{self.upper_tokens:,} tokens exceeds {self.limit:,}"
            return Need("hard", f"a request of up to {sizes}")
        if reason := self.past_bound or self._went_cold:
            return Need("soft", reason)
        if not writer or not self.may_summarize:
            return None
        settings, room = self.settings, self.room
        most_tokens, most_messages = self.most_history, settings.trigger_messages
        begin = portion(WRITTEN_SHARE, room)
        if writer != "inline":
            # begun below what a compaction keeps, one summary would follow the other for ever
            least = ON_DEMAND_SHARE if writer == "provider" else settings.keep
            begin = max(portion(settings.prepare, room), portion(least, room))
            if settings.trigger is not None:
                most_tokens = int(PREPARED_SHARE * most_tokens)
            if most_messages is not None:
                most_messages = int(PREPARED_SHARE * most_messages)
        reason = self._past(min(begin, most_tokens), most_messages)
        return Need("ahead", reason) if reason else None

    @property
    def past_bound(self) -> str:
        """Which bound of the user's own the history exceeds, in words; empty when none."""
        settings = self.settings
        has_bound = (settings.trigger, settings.max_history_tokens) != (None, None)
        most_tokens = self.most_history if has_bound else self.history_tokens
        return self._past(most_tokens, settings.trigger_messages)

    def _past(self, most_tokens: int, most_messages: int | None) -> str:
        """Which of these the history exceeds, with the settings that say so; empty where it exceeds none."""
        settings, room = self.settings, self.room
        if self.history_tokens > most_tokens:
            share = 100 * most_tokens / max(1, room)
            return (
                f"history of {self.history_tokens:,} tokens is past {share:.0f} % of the {room:,} tokens left for "
                "history (trigger, max_history_tokens)"
            )
        if most_messages is None or self.shown_messages <= most_messages:
            return ""
        return (
            f"{self.shown_messages:,} messages are past {most_messages:,} of "
            f"trigger_messages={settings.trigger_messages}"
        )

    @property
    def _went_cold(self) -> str:
        """Why a conversation that was idle is compacted: the next request is read at the full price in any case.

        A compaction is near from the size on at which a summary is prepared.
        """
        settings = self.settings
        answered = self.session.counts.get("answered_seconds")
        near = portion(settings.prepare, self.room)
        if self.now_seconds is None or not answered or self.history_tokens <= near:
            return ""
        is_short = settings.prompt_cache == "5m"
        kept_seconds = self.rules.marked_seconds if is_short else CACHE_SECONDS
        return IDLE if self.now_seconds - answered > kept_seconds else ""

    @property
    def fits(self) -> bool:
        """True when the request may be sent."""
        return self.upper_tokens <= self.limit

    @property
    def likely_fits(self) -> bool:
        """True when the current user message need not be cut.

        While the provider reported no size a question is not cut on a mere suspicion: if the provider refuses it,
        recovery covers the rest.
        """
        return self.likely_tokens <= self.limit

    @property
    def likely_tokens(self) -> int:
        """The upper bound, or the most likely size while the provider reported none."""
        return self.upper_tokens if self.sizing.is_reported else self.total_tokens

    @property
    def likely_limit(self) -> int:
        """The limit as a most likely size: what the bound on an unsure count leaves of it."""
        return int(self.limit * self.total_tokens / max(1, self.upper_tokens))

    @property
    def room(self) -> int:
        """What the fixed regions leave for history, as most likely sizes: the limit less what they may be short of.

        While counts are unsure a request is at its limit long before its most likely size is.
        """
        room = max(0, self.likely_limit - self.fixed_tokens)
        most = self.settings.max_history_tokens
        return room if most is None else min(room, most)

    @property
    def most_history(self) -> int:
        """Tokens of the history past which something leaves: the trigger, or all of the room."""
        trigger = self.settings.trigger
        return portion(1.0 if trigger is None else trigger, self.room)

    @property
    def low_water(self) -> int:
        """Total that a compaction aims for; pins, summary and record count as cost before it is set.

        `keep` is about what came before the newest step, which stays in any case; a large one leaves less of that.
        """
        kept = portion(self.settings.keep, self.room)
        if self.settings.trigger is not None and kept >= self.most_history:
            kept = self.most_history // 2  # a low trigger beside the default of `keep`
        if self.needs_room:
            return self.fixed_tokens + kept // 2
        newest = self.newest.tokens if self.newest else 0
        beside = min(kept + newest, int(KEPT_WITH_NEWEST_SHARE * self.most_history))
        return self.fixed_tokens + max(kept, beside)

    @property
    def shown_messages(self) -> int:
        """How many messages of the history the view holds."""
        return self.stop - self.start

    @property
    def kept_messages(self) -> int:
        """Messages that a compaction by their number leaves."""
        settings = self.settings
        share = min(settings.keep, KEPT_MESSAGES_SHARE)
        return max(LEAST_MESSAGES, int(share * (settings.trigger_messages or 0)))

    @property
    def is_low(self) -> bool:
        """True when the request fits and is at or below its low-water mark."""
        most = self.settings.trigger_messages
        is_few = most is None or self.shown_messages <= self.kept_messages
        return self.fits and self.total_tokens <= self.low_water and is_few

    @property
    def may_summarize(self) -> bool:
        """True while summaries are on, and the last ones came to something."""
        has_given_up = self.session.has_given_up(self.history.messages)
        return self.settings.summarize != "off" and not has_given_up


Window = Request
"""The public name of a request."""
