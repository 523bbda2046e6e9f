"""What `aegra.json` names: the graph of one worker, which reads its place from the environment."""

import os

from fleet.graph import Place, build

graph = build(Place.of(os.environ)).compile()
