"""Texts to count tokens in: self-written ones of the kinds that agents read, multiplied with a fixed seed."""

# ruff: noqa: RUF001  # Chinese text has commas of its own
from __future__ import annotations

import json
import random
import uuid

PER_KIND = 12
SENTENCES = {
    "prose_en": (
        "The customer asked twice whether the replacement would arrive before the weekend.",
        "We moved the cache behind the gateway, and latency fell by a third within an hour.",
        "Nobody had noticed that the invoice was booked in the wrong currency until the audit.",
        "Please read the attached notes carefully before you answer the second question.",
        "It's a small change, but it touches every service that reads the session table.",
    ),
    "zh": (
        "客户询问订单什么时候可以送达，并希望在周末之前收到。",
        "我们把缓存放在网关后面，延迟在一小时内降低了三分之一。",
        "请在回答第二个问题之前仔细阅读附件中的说明。",
        "数据库升级之后，所有服务都需要重新启动一次。",
    ),
    "ru": (
        "Клиент спросил, придёт ли замена до выходных.",
        "После обновления базы данных все службы нужно перезапустить.",
        "Пожалуйста, прочитайте приложенные заметки перед ответом.",
    ),
    "hi": ("ग्राहक ने पूछा कि सामान कब पहुँचेगा।", "कृपया उत्तर देने से पहले नोट ध्यान से पढ़ें।", "डेटाबेस अपडेट के बाद सेवा फिर से शुरू करें।"),
    "ja": (
        "お客様は、商品がいつ届くのかと尋ねました。",
        "回答する前に添付のメモをよく読んでください。",
        "更新後にサービスを再起動します。",
    ),
    "de": (
        "Der Kunde fragte, ob die Ersatzlieferung vor dem Wochenende eintrifft.",
        "Nach der Aktualisierung müssen alle Dienste neu gestartet werden.",
        "Bitte lesen Sie die beigefügten Hinweise, bevor Sie antworten.",
    ),
}  # fmt: skip
CODE = '''def load_{name}(path: Path, *, limit: int = {n}) -> list[dict[str, Any]]:
    """Return at most `limit` rows of a file, newest first."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    if not rows:
        raise ValueError(f"{{path}} is empty: run the import of {name} first")
    return sorted(rows, key=lambda row: row["created_at"], reverse=True)[:limit]


'''
NAMES = ("order", "invoice", "customer", "shipment", "ticket", "session", "webhook", "subscription", "flight", "parser")
AGENT_KINDS = {"prose_en", "code", "json", "csv", "table", "log", "diff"}


def texts() -> list[tuple[str, str]]:
    """Kind and text, `PER_KIND` of each, from a few lines to some pages."""
    rng = random.Random(7)  # noqa: S311  # reproducible texts, not secrets
    makers = {"code": _code, "json": _json, "csv": _csv, "table": _table, "log": _log, "diff": _diff}
    made = [(kind, make(rng, rng.randint(3, 60))) for kind, make in makers.items() for _ in range(PER_KIND)]
    for kind, sentences in SENTENCES.items():
        gap = "" if kind in {"zh", "ja"} else " "
        made += [(kind, gap.join(rng.choices(sentences, k=rng.randint(3, 40)))) for _ in range(PER_KIND)]
    return made


def _code(rng: random.Random, lines: int) -> str:
    return "".join(CODE.format(name=rng.choice(NAMES), n=rng.randint(10, 999)) for _ in range(1 + lines // 8))


def _row(rng: random.Random) -> dict[str, object]:
    return {
        "id": str(uuid.UUID(int=rng.getrandbits(128), version=4)), "kind": rng.choice(NAMES), "paid": True,
        "created_at": f"2025-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}T08:{rng.randint(10, 59)}:00Z",
        "amount": rng.random() * 99,
    }  # fmt: skip


def _json(rng: random.Random, lines: int) -> str:
    return json.dumps({"rows": [_row(rng) for _ in range(lines)]}, indent=rng.choice((None, 2)))


def _csv(rng: random.Random, lines: int) -> str:
    rows = (
        f"{rng.randint(1, 9999)},{rng.choice(NAMES)},{rng.random() * 99:.2f},{rng.choice(NAMES)}" for _ in range(lines)
    )
    return "id,kind,amount,owner\n" + "\n".join(rows)


def _table(rng: random.Random, lines: int) -> str:
    rows = (f"| {rng.randint(1, 99)} | {rng.choice(NAMES)} | {rng.random() * 99:.2f} |" for _ in range(lines))
    return "| id | kind | amount |\n|----|------|--------|\n" + "\n".join(rows)


def _log(rng: random.Random, lines: int) -> str:
    rows = (
        f"2025-03-1{rng.randint(0, 9)} 08:{rng.randint(10, 59)}:{rng.randint(10, 59)},{rng.randint(100, 999)} INFO "
        f"[worker-{rng.randint(1, 9)}] app.{rng.choice(NAMES)}: handled {rng.choice(NAMES)} in {rng.randint(1, 900)} ms"
        for _ in range(lines)
    )
    return "\n".join(rows)


def _diff(rng: random.Random, lines: int) -> str:
    code = _code(rng, lines).splitlines()
    return "diff --git a/app.py b/app.py\n@@ -1,7 +1,7 @@\n" + "\n".join(rng.choice(" +-") + line for line in code)
