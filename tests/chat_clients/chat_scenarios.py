"""Scenarios that each chat client plays in its own way: `CLIENT:SCENARIO` of the Python programs.

A client has `ask(content, stream)`, which adds to its history and returns the answer, and `structured(text)`, which asks for
JSON of a schema. The content is a text, or a text and a picture as a `data:` URL.
"""

import contextlib
import json
import sys
import threading
import time
import urllib.request

PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def shown(action):
    """What a person sees: the answer, or the exception as the client shows it."""
    try:
        return {"text": action()}
    except Exception as failed:
        return {"error": type(failed).__name__, "message": str(failed)}


def both(begin, content):
    """The same first message with and without a stream, each in a conversation of its own."""
    return {"whole": shown(lambda: begin().ask(content, False)), "streamed": shown(lambda: begin().ask(content, True))}


def conversation(begin, prompts):
    """Several messages in one conversation."""

    def answers(stream):
        client = begin()
        return [client.ask(prompt, stream) for prompt in prompts.split("|")]

    return {"whole": shown(lambda: answers(False)), "streamed": shown(lambda: answers(True))}


def mixed(begin, prompts):
    """Several messages in one conversation, of which some fail."""
    client = begin()
    return [shown(lambda prompt=prompt: client.ask(prompt, False)) for prompt in prompts.split("|")]


def picture(begin, prompt):
    """A text, a text with a picture, and a text again in one conversation."""
    client = begin()
    contents = [prompt, (prompt, PICTURE), prompt]
    return [shown(lambda content=content: client.ask(content, False)) for content in contents]


class Gateway:
    """The API of the gateway, as another program uses it."""

    def __init__(self, url, key):
        self.url = url.split("/openai/")[0]
        self.key = key

    def call(self, method, path):
        request = urllib.request.Request(self.url + path, method=method, headers={"authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request) as response:
            return json.loads(response.read() or "null")

    def cancel_turn(self):
        """Cancels the turn that runs, as soon as there is one."""
        while True:
            for session in self.call("GET", "/v1/sessions")["sessions"]:
                if session["state"] == "running":
                    return self.call("POST", f"/v1/sessions/{session['sessionId']}/cancel")
            time.sleep(0.05)


def cancelled(begin, prompt, gateway):
    """Another program cancels the turn while the client waits."""

    def ask(stream):
        client = begin()
        thread = threading.Thread(target=gateway.cancel_turn, daemon=True)
        thread.start()
        return shown(lambda: client.ask(prompt, stream))

    return {"whole": ask(False), "streamed": ask(True)}


def play(clients, url, key, name, prompt):
    client, scenario = name.split(":")
    begin = clients[client]
    scenarios = {
        "text": lambda: both(begin, prompt),
        "conversation": lambda: conversation(begin, prompt),
        "mixed": lambda: mixed(begin, prompt),
        "structured": lambda: shown(lambda: begin().structured(prompt)),
        "picture": lambda: picture(begin, prompt),
        "cancelled": lambda: cancelled(begin, prompt, Gateway(url, key)),
    }
    # Some clients print to stdout, which is for the JSON.
    with contextlib.redirect_stdout(sys.stderr):
        return scenarios[scenario]()
