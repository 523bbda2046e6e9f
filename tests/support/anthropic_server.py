"""A loopback Anthropic Messages API: its rules, its context edits, its prompt cache, and a scripted model."""

import base64
import hashlib
import itertools
import json

from langchain_anthropic import ChatAnthropic

from support import anthropic_rules as rules
from support.anthropic_rules import THINKING, prompt_blocks, visible
from support.loopback import Answer, Loopback, RefusalError, script
from support.oracle import text_tokens
from support.prompt_cache import CacheUse, PromptCache

ANSWER = "Noted: the boats were counted."
SUMMARY = "The boats were counted so far."
SUMMARY_PROMPT_TOKENS = 64  # what the server adds to the context that it summarizes


class AnthropicServer(Loopback):
    """Answers `/v1/messages` like the API.

    `policy` writes the blocks of an answer; thinking gets a signature, calls get an id. All thinking is kept in the
    prompt unless the request clears it, as with the models of today. A request that sends back a block which this
    server did not issue, or not as it was, is refused. With `binds`, as with models since September 2026, thinking is
    adaptive, and so is a block refused behind another prefix than its own, and one before which another was left out.

    Example:
        >>> with AnthropicServer(context_window=4096) as server:
        ...     server.chat_model(max_tokens=512).invoke("hi").text == ANSWER
        True
    """

    def __init__(
        self,
        *,
        context_window=200_000,
        policy=None,
        summary=SUMMARY,
        binds=False,
        takes_system=False,
        max_bytes=32_000_000,
        max_images=100,
    ):
        super().__init__()
        self.context_window = context_window
        self.policy = policy or script(ANSWER)
        self.summary = summary
        self.binds, self.takes_system = binds, takes_system
        self.max_bytes, self.max_images = max_bytes, max_images
        self.bound = {}
        """Signature of a thinking block -> digest of what preceded it, and the signature of the block before it."""

        self.issued = {}
        """Signature, or encrypted data, of each thinking and compaction block -> that block."""

        self.betas = []
        """Feature headers of each request."""

        self.stands_for = {}
        """Signature of a block of a compaction on demand -> what it stands for."""

        self._cache = PromptCache()
        self._numbers = itertools.count(1)
        # message id -> system prompt of its request
        self._systems = {}

    def chat_model(self, **options):
        """Return the real client, pointed at this server, without retries."""
        settings = {
            "model": "claude-test",
            "api_key": "x",
            "base_url": self.url,
            "max_retries": 0,
            "max_tokens": 256,
        }
        return ChatAnthropic(**settings | options)

    def answer(self, call):
        """Answer one request by the rules."""
        body = call.body
        betas = call.headers.get("anthropic-beta", "")
        self.betas.append(betas)
        rules.check_size(body, max_bytes=self.max_bytes, max_images=self.max_images)
        rules.check_system(body, is_taken=self.takes_system)
        rules.check(body, betas)
        self._changes = []
        body = self._bound(body, betas)
        self._check_issued(body)
        seen = visible(body)
        self._after = (
            rules.prefix(seen, stands_for=self.stands_for),
            next(iter(_thoughts_in(seen)[::-1]), ""),
        )
        edited, applied = rules.apply_clearing(seen)
        tokens = rules.prompt_tokens(edited)
        self._check_size(tokens, int(body["max_tokens"]))
        message, tokens = self._message(edited, applied)
        if rules.BINDING_BETA in betas:
            message["input_transformations"] = self._changes
        return Answer(body=message, tokens=tokens)

    def error_body(self, refusal):
        """Write a refusal as the API does."""
        error = {"type": "invalid_request_error", "message": refusal.message}
        return {
            "type": "error",
            "error": error
            | ({"details": {"error_code": refusal.code}} if refusal.code else {}),
        }

    def _bound(self, body, betas):
        """Return the request without thinking of another prefix where it asks for that; refuse it otherwise."""
        drops = rules.drops_bound(body, betas)
        if not self.binds:
            if "block_binding" in (body.get("thinking") or {}):
                raise RefusalError(
                    "thinking.block_binding: not supported by this model"
                )
            return body
        if (body.get("thinking") or {}).get("type") == "enabled":
            raise RefusalError(
                "thinking.type: `enabled` is not supported by this model"
            )
        body, before = visible(body) | {"thinking": {"type": "adaptive"}}, ""
        for index, message in enumerate(body["messages"]):
            kept = []
            for place, block in enumerate(message["content"]):
                if block["type"] in THINKING:
                    after, previous = self.bound.get(_sign(block), ("", ""))
                    now = rules.prefix(body, index, place, self.stands_for)
                    if after != now or before not in (
                        "",
                        previous,
                    ):
                        if not drops:
                            raise RefusalError(
                                f"messages.{index}.content.{place}: Invalid `signature` in `{block['type']}` block. "
                                "The block is bound to a different conversation. Remove the block, or set "
                                '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
                            )
                        self._changes.append(
                            {
                                "type": "thinking_dropped",
                                "path": f"messages.{index}.content.{place}",
                                "reason": "prefix_binding_mismatch",
                            }
                        )
                        continue
                    before = _sign(block)
                kept.append(block)
            message["content"] = kept
        return body

    def _check_size(self, size, output):
        if size > self.context_window:
            raise RefusalError(
                f"prompt is too long: {size} tokens > {self.context_window} maximum"
            )
        if size + output > self.context_window:
            text = f"{size} + {output} > {self.context_window}, decrease input length or `max_tokens` and try again"
            raise RefusalError(
                f"input length and `max_tokens` exceed context limit: {text}"
            )

    def _check_issued(self, body):
        seen = visible(body)
        self._check_compactions(body)
        if rules.thinks(body):
            self._check_thoughts(seen)

    def _check_compactions(self, body):
        """Source: the docstrings of `compaction_*_error` in the SDK."""
        blocks = [
            block for message in body["messages"] for block in rules.blocks_of(message)
        ]
        found = [block for block in blocks if rules.is_compaction(block)]
        for block in found:
            sign = block.get("signature") or block.get("encrypted_content")
            if sign and sign not in self.issued:
                raise RefusalError(
                    "Invalid `signature` in `compaction` block",
                    code="compaction_signature_invalid",
                )
            if sign and self.issued[sign]["content"] != block["content"]:
                raise RefusalError(
                    "`compaction` content was changed",
                    code="compaction_content_mismatch",
                )
        if any(block.get("signature") for block in found):
            if len(found) > 1:
                raise RefusalError(
                    "more than one `compaction` block",
                    code="compaction_block_ambiguous",
                )
            if blocks[0] is not found[0]:
                raise RefusalError(
                    "`compaction` must be the first block",
                    code="compaction_block_misplaced",
                )

    def _check_thoughts(self, seen):
        """A block must be as it was issued."""
        last = max(
            (i for i, m in enumerate(seen["messages"]) if m["role"] == "assistant"),
            default=-1,
        )
        for index, message in enumerate(seen["messages"]):
            thoughts = [
                _bare_thought(block)
                for block in message["content"]
                if block["type"] in THINKING
            ]
            changed = any(self.issued.get(_sign(block)) != block for block in thoughts)
            if changed and index == last:
                raise RefusalError(
                    f"messages.{index}.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant "
                    "message cannot be modified. These blocks must remain as they were in the original response."
                )
            if changed:
                raise RefusalError(
                    f"messages.{index}.content.0: Invalid `signature` in `thinking` block"
                )

    def _message(self, seen, applied):
        """Return the message that answers a valid request, and the size of its prompt."""
        head = []
        extra = {}
        native, edit = "compaction" in seen, rules.compacts(seen)
        if native or edit:
            head, spent = self._compaction(seen, signed=native)
            if self.summary is not None:
                seen = seen | {"messages": [{"role": "assistant", "content": head}]}
                self._after = rules.prefix(seen), ""
            if native:
                usage = {**_usage(CacheUse(read=0, fresh=0), 0), **spent}
                return self._reply(seen, head, "compaction", usage), spent[
                    "iterations"
                ][0]["input_tokens"]
            extra = spent
        blocks = prompt_blocks(seen)
        use = self._cache.bill(blocks, scope=seen["model"])
        content, reason = self._content(seen)
        usage = _usage(use, sum(map(_output_tokens, content)))
        if extra:
            usage["iterations"] = [*extra["iterations"], {"type": "message", **usage}]
        message = self._reply(seen, head + content, reason, usage)
        if "diagnostics" in seen:
            message["diagnostics"] = {"cache_miss_reason": self._miss(seen)}
        self._systems[message["id"]] = seen.get("system")
        if "context_management" in seen:
            message["context_management"] = {"applied_edits": applied}
        return message, sum(block.tokens for block in blocks)

    def _miss(self, seen):
        """Say that the system prompt changed; source: the docstrings of `BetaCacheMiss...` in the SDK."""
        previous = seen["diagnostics"]["previous_message_id"]
        system = seen["system"]
        if self._systems.get(previous, system) == system:
            return None
        tokens = sum(block.tokens for block in prompt_blocks(seen))
        return {"type": "system_changed", "cache_missed_input_tokens": tokens}

    def _reply(self, seen, content, reason, usage):
        head = {
            "id": f"msg_{next(self._numbers)}",
            "type": "message",
            "role": "assistant",
            "model": seen["model"],
        }
        return head | {
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def _compaction(self, seen, *, signed):
        """Return the block of a compaction and what it cost, which the usage beside it leaves out."""
        key = "signature" if signed else "encrypted_content"
        block = {
            "type": "compaction",
            "content": self.summary,
            key: self._seal(self.summary or ""),
        }
        self.issued[block[key]] = block
        if signed:
            told = rules.told_before(seen, None, 0, self.stands_for)
            self.stands_for[block[key]] = told
        use = self._cache.bill(prompt_blocks(seen), scope=seen["model"])
        usage = _usage(use, text_tokens(self.summary or ""))
        usage["input_tokens"] += SUMMARY_PROMPT_TOKENS
        return [block], {"iterations": [{"type": "compaction", **usage}]}

    def _content(self, seen):
        """Return the blocks of the scripted model, signed, and why it stopped."""
        written = self.policy(seen)
        blocks = (
            [{"type": "text", "text": written}]
            if isinstance(written, str)
            else [dict(each) for each in written]
        )
        for block in blocks:
            self._finish(block)
        thoughts = [block for block in blocks if block["type"] in THINKING]
        self.issued.update({_sign(block): block for block in thoughts})
        after, before = self._after
        for block in thoughts:
            self.bound[_sign(block)] = after, before
            before = _sign(block)
        is_calling = any(block["type"] == "tool_use" for block in blocks)
        return blocks, "tool_use" if is_calling else "end_turn"

    def _finish(self, block):
        if block["type"] == "tool_use" and "id" not in block:
            block["id"] = f"toolu_{next(self._numbers)}"
        if block["type"] == "thinking":
            block.setdefault("signature", self._seal(block["thinking"]))

    def _seal(self, text):
        seed = f"{next(self._numbers)} {text}".encode()
        return base64.b64encode(hashlib.sha256(seed).digest()).decode()


def _thoughts_in(seen):
    return [
        _sign(block)
        for message in seen["messages"]
        for block in message["content"]
        if block["type"] in THINKING
    ]


def _sign(block):
    return str(block.get("signature") or block.get("data"))


def _bare_thought(block):
    return {
        key: value
        for key, value in block.items()
        if key in {"type", "thinking", "signature", "data"}
    }


def _usage(use, output):
    return {
        "input_tokens": use.fresh,
        "cache_read_input_tokens": use.read,
        "cache_creation_input_tokens": use.written_5m + use.written_1h,
        "cache_creation": {
            "ephemeral_5m_input_tokens": use.written_5m,
            "ephemeral_1h_input_tokens": use.written_1h,
        },
        "output_tokens": output,
    }


def _output_tokens(block):
    return text_tokens(
        block.get("text") or block.get("thinking") or json.dumps(block.get("input", ""))
    )
