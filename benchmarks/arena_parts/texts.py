"""What do tools and users say? Made-up texts of a wanted length in tokens, reproducible from a seed."""

# ruff: noqa: RUF001  # Chinese text has commas of its own
from __future__ import annotations

import base64
import json
import random
import struct
import uuid
import zlib
from collections.abc import Callable

import exact

SUBJECTS = (
    "The billing service", "Our night shift", "The regional warehouse", "A returning customer", "The import job",
    "The audit team", "The second replica", "The carrier in Rotterdam", "The mobile client", "A contractor",
    "The invoice parser", "The staging cluster", "The help desk", "The payment gateway", "The search index",
)  # fmt: skip
VERBS = (
    "rejected", "delayed", "confirmed", "duplicated", "rescheduled", "escalated", "archived", "overlooked",
    "recalculated", "forwarded", "restored", "questioned", "postponed", "approved", "measured",
)  # fmt: skip
OBJECTS = (
    "the quarterly statement", "three pallets of spare parts", "an expired certificate", "the loyalty discount",
    "a batch of refunds", "the maintenance window", "forty orphaned records", "the retry policy", "a customs form",
    "the session table", "an unsigned contract", "the delivery note", "a memory leak", "the exchange rate",
)  # fmt: skip
ENDINGS = (
    "because nobody had updated the shared calendar", "after the second reminder", "without telling the other office",
    "although the contract says otherwise", "while the backup was still running", "before the weekend",
    "so the numbers no longer match", "and asked for a written explanation", "within eleven minutes",
    "despite the new procedure", "as the handbook recommends", "for reasons that remain unclear",
)  # fmt: skip
CHINESE = (
    "客户询问订单什么时候可以送达，并希望在周末之前收到。",
    "我们把缓存放在网关后面，延迟在一小时内降低了三分之一。",
    "请在回答第二个问题之前仔细阅读附件中的说明。",
    "数据库升级之后，所有服务都需要重新启动一次。",
    "华东仓库本周的出库量比上周减少了百分之十二，主要原因是节假日。",
    "财务部门要求在月底之前提交全部报销单据和合同扫描件。",
    "该接口在高峰期偶尔超时，重试两次之后通常可以恢复正常。",
    "客服团队建议把退款流程简化，并在页面上显示预计到账时间。",
    "供应商已经确认新的交货日期，但是价格需要重新商议。",
)
Sentence = Callable[[random.Random], str]


def fit(rng: random.Random, sentence: Sentence, tokens: int, joint: str = " ") -> str:
    """Sentences until `tokens` is reached."""
    found, size = [], 0
    while size < tokens:
        found.append(sentence(rng))
        size += exact.text_tokens(found[-1])
    return joint.join(found)


def prose(rng: random.Random, tokens: int) -> str:
    return fit(rng, _english, tokens)


def chinese(rng: random.Random, tokens: int) -> str:
    return fit(rng, lambda r: r.choice(CHINESE), tokens, "")


def rows(rng: random.Random, tokens: int) -> str:
    """A JSON document of rows with long ids and numbers."""
    return '{"rows": [' + fit(rng, _row, tokens, ", ") + "]}"


def log(rng: random.Random, tokens: int) -> str:
    return fit(rng, _log_line, tokens, "\n")


def png(rng: random.Random, width: int, height: int) -> str:
    """Base64 of an image of this size with noise in it, so that its data is long."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    noise = rng.randbytes(width * height // 24)
    data = zlib.compress(noise, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b""))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def pdf(rng: random.Random, pages: int, page_bytes: int = 45_000) -> str:
    """Base64 of a document with `pages` page objects."""
    body = b"".join(
        b"1 0 obj <</Type /Page\n>> endobj\n" + rng.randbytes(page_bytes)
        for _ in range(pages)
    )
    return base64.b64encode(b"%PDF-1.7\n" + body.replace(b"%PDF", b"")).decode()


def _english(rng: random.Random) -> str:
    number = f" (case {rng.randint(100, 99_999)})" if rng.random() < 0.3 else ""
    return f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(OBJECTS)} {rng.choice(ENDINGS)}{number}."


def _row(rng: random.Random) -> str:
    row = {
        "id": str(uuid.UUID(int=rng.getrandbits(128), version=4)), "name": rng.choice(OBJECTS),
        "amount": round(rng.random() * 9_999, 4), "paid": rng.random() < 0.5, "owner": rng.choice(SUBJECTS),
        "created_at": f"2025-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}T08:{rng.randint(10, 59)}:00Z",
    }  # fmt: skip
    return json.dumps(row)


def _log_line(rng: random.Random) -> str:
    when = f"2025-03-1{rng.randint(0, 9)} 08:{rng.randint(10, 59)}:{rng.randint(10, 59)},{rng.randint(100, 999)}"
    return f"{when} INFO [worker-{rng.randint(1, 9)}] {_english(rng)} ({rng.randint(1, 900)} ms)"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return (
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
    )
