"""Runs the httpx-sse client and prints a line of JSON for each event that it delivers and each close of its stream.

python run.py URL KEY
"""

import json
import sys

from httpx_sse_client import follow


def out(line):
    print(json.dumps(line), flush=True)


follow(sys.argv[1], sys.argv[2], lambda event: out({"event": event}), lambda closed: out({"closed": closed}))
