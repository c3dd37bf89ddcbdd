"""The API of a gateway, directly or through a proxy with TLS."""

import http.client
import json
import socket
import ssl


class Api:
    def __init__(self, address, key, host=None, authority=None):
        self.address = address
        self.host = host or f"{address[0]}:{address[1]}"
        self.headers = {"Authorization": f"Bearer {key}"}
        self.authority = authority

    def open(self, method, path, body=None, headers=()):
        plain = socket.create_connection(self.address, timeout=30)
        if self.authority:
            context = ssl.create_default_context(cafile=self.authority)
            plain = context.wrap_socket(plain, server_hostname=self.host)
        connection = http.client.HTTPConnection(self.host)
        connection.sock = plain
        headers = {**self.headers, **dict(headers)}
        if body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(body)
        connection.request(method, path, body, headers)
        return connection.getresponse()

    def status(self, path):
        try:
            return self.open("GET", path).status
        except OSError:
            return None

    def ask(self, method, path, body=None, headers=()):
        with self.open(method, path, body, headers) as response:
            text = response.read().decode()
            assert response.status < 300, f"{method} {path}: {response.status} {text}"
            return json.loads(text) if text else None

    def new_session(self):
        return self.ask("POST", "/v1/sessions", {"agent": "demo"})

    def prompt(self, session, text):
        """Sends a prompt and waits for the end of its turn."""
        return self.ask("POST", f"/v1/sessions/{session}/prompts", {"prompt": text}, {"Prefer": "wait=60"})

    def start(self, session, text):
        return self.ask("POST", f"/v1/sessions/{session}/prompts", {"prompt": text})

    def events(self, session):
        """The whole log."""
        return self.ask("GET", f"/v1/sessions/{session}/events?limit=1000", headers={"Accept": "application/json"})["events"]

    def follow(self, session):
        """Yields the events of the live stream until the connection ends."""
        with self.open("GET", f"/v1/sessions/{session}/events/stream") as response:
            assert response.status == 200, response.read()
            for line in response:
                if line.startswith(b"data: "):
                    yield json.loads(line[len(b"data: "):])
