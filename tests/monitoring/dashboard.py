"""Reads the dashboard with the types of Grafana, and compares the result: an unknown or misspelled member would be lost."""

import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(written, read, path):
    if isinstance(written, dict):
        for name, value in written.items():
            if name not in read:
                yield f"{path}/{name}"
            else:
                yield from lost(value, read[name], f"{path}/{name}")
    elif isinstance(written, list):
        for index, value in enumerate(written):
            yield from lost(value, read[index], f"{path}/{index}")
    elif written != read:
        yield path


file = pathlib.Path(__file__).parents[2] / "deploy/grafana/acp-gateway.json"
written = json.loads(file.read_text())
read = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
missing = list(lost(written, read, ""))
if missing:
    sys.exit(f"Grafana does not know these members of the dashboard: {missing}")
print(f"{len(written['panels'])} panels and rows")
