"""Rebuilds the parts of a data folder whose public source is enough; README.md says of the others why it is not.

    python benchmarks/fetch_data.py DIR

Files come from GitHub at a fixed commit. What is rebuilt has more rows than the folder that RESULTS.md was made with,
of which some were kept aside: figures differ a little. Licences differ from part to part: read them before you pass
anything on.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import quicktok

from common import parser_of

BASE = "https://raw.githubusercontent.com"
TAU = "sierra-research/tau-bench/59a200c6d575d595120f1cb70fea53cef0632f6b"
ROUTELLM = "lm-sys/RouteLLM/0b64fdafe049e596a3f5657c219329f24af24198/routellm/evals"
TIMEOUT_SECONDS = 60

AIRLINE_TOOLS = (
    "book_reservation", "calculate", "cancel_reservation", "get_reservation_details", "get_user_details",
    "list_all_airports", "search_direct_flight", "search_onestop_flight", "send_certificate", "think",
    "transfer_to_human_agents", "update_reservation_baggages", "update_reservation_flights",
    "update_reservation_passengers",
)  # fmt: skip
SUBJECTS = (
    "abstract_algebra", "anatomy", "astronomy", "clinical_knowledge", "college_biology", "college_chemistry",
    "college_physics", "computer_security", "econometrics", "electrical_engineering", "formal_logic",
    "high_school_chemistry", "high_school_computer_science", "high_school_world_history", "human_aging",
    "logical_fallacies", "machine_learning", "marketing", "miscellaneous", "moral_disputes", "professional_law",
    "professional_medicine", "professional_psychology", "public_relations", "security_studies",
)  # fmt: skip
MODELS = {
    "mixtral-8x7b-instruct": ("mistralai/Mixtral-8x7B-Instruct-v0.1", 0.6, 0.6),
    "gpt-4-1106-preview": ("gpt-4-1106-preview", 10.0, 30.0),
}
"""Name, column, and US dollars per million tokens of input and output when the outcomes were published."""


def read(path: str) -> str:
    with urlopen(f"{BASE}/{path}", timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310  # the address is ours
        return answer.read().decode("utf-8")


def tau_airline() -> Iterator[dict[str, Any]]:
    """tau-bench: 200 recorded runs of an agent of an airline."""
    folder = f"{TAU}/tau_bench/envs/airline/tools"
    tools = [stated_tool(read(f"{folder}/{name}.py")) for name in AIRLINE_TOOLS]
    for row in json.loads(read(f"{TAU}/historical_trajectories/gpt-4o-airline.json")):
        name = f"tau-airline-gpt4o-{row['task_id']}-{row['trial']}"
        yield {"id": name, "tools": tools, "messages": row["traj"]}


def stated_tool(source: str) -> dict[str, Any]:
    """The definition that the module of a tool returns as a literal; nothing of it is executed."""
    returned = next(
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict)
    )
    tool: dict[str, Any] = ast.literal_eval(returned)
    return tool


def routellm() -> Iterator[dict[str, Any]]:
    """RouteLLM: which of two models answered questions of MMLU and GSM8K right."""
    count = quicktok.get_encoding("o200k_base").count
    files = [f"mmlu/responses/mmlu_{subject}.csv" for subject in SUBJECTS]
    for path in (*files, "gsm8k/gsm8k_responses.csv"):
        for row in csv.DictReader(io.StringIO(read(f"{ROUTELLM}/{path}"))):
            models = dict[str, Any]()
            for model, (column, *_) in MODELS.items():
                models[model] = {"correct": int(row[column] == "True")}
                if answer := row.get(f"{column}_response"):
                    models[model]["out_tokens"] = count(answer)
            prompt = row["prompt"]
            yield {"prompt": prompt, "in_tokens": count(prompt), "models": models}


def prices() -> Iterator[dict[str, Any]]:
    """What the two models cost."""
    yield {
        model: {"input_per_mtok": read_price, "output_per_mtok": written_price}
        for model, (_, read_price, written_price) in MODELS.items()
    }


PARTS = {
    "transcripts/tau_airline.jsonl.gz": tau_airline,
    "routing/routellm.jsonl.gz": routellm,
    "routing/routellm.prices.json.gz": prices,
}


def main() -> None:
    parser = parser_of(__doc__, data="")
    parser.add_argument(
        "folder", type=Path, help="where to write; what is there already stays"
    )
    folder = parser.parse_args().folder
    for name, rows in PARTS.items():
        path = folder / name
        if path.exists():
            print(f"{name}: there already")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lines = [json.dumps(row, ensure_ascii=False) for row in rows()]
        except OSError as error:
            print(f"{name}: not fetched: {error}")
            continue
        path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
        print(f"{name}: {len(lines):,} rows. {rows.__doc__}")


if __name__ == "__main__":
    main()
