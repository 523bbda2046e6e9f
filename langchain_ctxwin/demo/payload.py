"""What does the tool return? Half a million tokens of generated shipments, or the rows of a JSON file."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_ctxwin.errors import ConfigError

Row = dict[str, Any]

GENERATED_ROWS = 2_400
"""Rows of the generated payload: with some 210 tokens each, half a million tokens in all."""

LONG_ROW = 1_500
"""The row whose log is longer than the whole window."""

LOG_LINES = 600

CITIES = ("Graz", "Brno", "Turin", "Lyon", "Ghent", "Malmo", "Porto", "Varna", "Riga", "Cork", "Split", "Basel")
STREETS = ("Harbour Road", "Mill Lane", "Station Square", "Garden Street", "Castle Hill")
TRADES = ("Tea", "Paper", "Timber", "Clocks", "Lamps", "Seeds", "Optics", "Ceramics")
NAMES = ("Ahlgren", "Bertani", "Corvin", "Duarte", "Elmsworth", "Fontaine", "Grabner", "Holloway", "Ilves", "Jansen")
CARRIERS = ("Northline", "Quickwagon", "Barge & Sons", "Alpine Freight", "Bluebird")
STATES = ("delivered", "in_transit", "held", "returned")
REMARKS = (
    "The consignee asked for a call before delivery.",
    "Two parcels were joined at the depot and carry one label now.",
    "The seal was checked at the border and found intact.",
    "Fragile goods: keep upright, do not stack more than two high.",
    "The driver waited for the ramp and left a note about the gate.",
)
EVENTS = (
    "scanned at the depot",
    "temperature within range",
    "waiting for a free ramp",
    "door opened and closed",
    "position reported by the lorry",
    "delayed by roadworks on the bypass",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The rows that the tool returns, and their text."""

    name: str
    rows: tuple[Row, ...]
    text: str
    """What the tool returns, word by word."""

    @classmethod
    def generated(cls, *, seed: int = 0, rows: int = GENERATED_ROWS) -> Payload:
        """Make shipments; the same seed makes the same ones."""
        made = tuple(_shipments(random.Random(seed), rows))  # noqa: S311  # sample data, no secret
        return cls(name="generated shipments", rows=made, text=json.dumps(made))

    @classmethod
    def read(cls, path: Path) -> Payload:
        """Read a JSON array of objects from a file, or the largest one below `json_payloads` of a folder.

        Raises:
            ConfigError: there is none.
        """
        if not path.is_dir():
            return _loaded(path)
        files = [file for file in (path / "json_payloads").rglob("*.json*") if file.is_file()]
        for file in sorted(files, key=lambda file: (-_text_bytes(file), file)):
            try:
                return _loaded(file)
            except ConfigError:
                continue  # not an array of objects: the next largest
        raise ConfigError(f"{path} has no JSON array of objects below json_payloads/: give a file")


def _loaded(path: Path) -> Payload:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
        rows = json.loads(text)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read as JSON ({error}): give a .json or .json.gz file") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{path} holds no array of objects: give a file with one")
    return Payload(name=path.name, rows=tuple(rows), text=text)


def _text_bytes(path: Path) -> int:
    """Size of the text; the end of a gzip file states it."""
    if path.suffix != ".gz":
        return path.stat().st_size
    return int.from_bytes(path.read_bytes()[-4:], "little")


def _shipments(dice: random.Random, rows: int) -> Iterator[Row]:
    for number in range(rows):
        row = _shipment(dice, number)
        yield row | {"log": _log(dice)} if number == min(LONG_ROW, rows // 2) else row


def _shipment(dice: random.Random, number: int) -> Row:
    code = f"{dice.choice(NAMES)[:2].upper()}-{10_000 + 7 * number}"
    town = dice.choice(CITIES)
    return {
        "id": code,
        "customer": f"{dice.choice(NAMES)} {dice.choice(TRADES)} {number + 1}",
        "status": dice.choice(STATES),
        "ordered_at": f"2024-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}T{dice.randint(6, 21):02}:15:00Z",
        "total_amount": dice.randint(1_000, 99_999) / 100,
        "quantity": dice.randint(1, 40),
        "destination": {"city": town, "street": f"{dice.choice(STREETS)} {dice.randint(1, 99)}", "zone": None},
        "town": town,
        "carrier": dice.choice(CARRIERS),
        "has_insurance": dice.random() < 0.4,  # noqa: PLR2004  # a share as good as any
        "label_url": f"https://labels.example.com/{code}/{dice.getrandbits(64):016x}.pdf",
        "tracking_url": f"https://track.example.com/{code}?key={dice.getrandbits(64):016x}",
        "contact": {"name": f"{dice.choice('ABCDEFG')}. {dice.choice(NAMES)}", "email": f"desk{number}@example.com"},
        "remark": " ".join(dice.sample(REMARKS, 2)),
    }


def _log(dice: random.Random) -> str:
    lines = (f"{n // 60:02}:{n % 60:02} {dice.choice(EVENTS)}, dock {dice.randint(1, 30)}" for n in range(LOG_LINES))
    return "\n".join(lines)
