import json
import sys
import time

import httpx
from httpx_sse import connect_sse


def follow(url, key, on_event, on_close=lambda how: None):
    """Follows a stream through cuts and restarts. Returns when the gateway says that the stream is complete."""
    headers = {"Authorization": f"Bearer {key}"}
    retry_ms = 1000
    with httpx.Client(timeout=httpx.Timeout(10, read=45)) as client:
        while True:
            last = "cut"
            try:
                with connect_sse(client, "GET", url, headers=headers) as source:
                    if source.response.status_code == 204:
                        return
                    source.response.raise_for_status()
                    for sse in source.iter_sse():
                        event = json.loads(sse.data)
                        on_event(event)
                        last = event["type"]
                        retry_ms = sse.retry or retry_ms
                        if sse.id:
                            headers["Last-Event-ID"] = sse.id
            except httpx.TransportError as error:
                print(repr(error), file=sys.stderr)
            on_close(last if last in ("end", "shutdown") else "cut")
            if last == "end":
                return
            time.sleep(retry_ms / 1000)
