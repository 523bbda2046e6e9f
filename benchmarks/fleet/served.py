"""What `aegra.json` names: the graph of one worker, which reads its place from the environment."""

import os
from pathlib import Path

from fleet.graph import Place, build

graph = build(
    Place(
        worker=os.environ["FLEET_WORKER"],
        valkey=os.environ["FLEET_VALKEY"],
        diary=Path(os.environ["FLEET_DIARY"]),
        model_seconds=float(os.environ["FLEET_MODEL_SECONDS"]),
    )
).compile()
