#!/usr/bin/env python3
"""A hostile agent. It speaks ACP over its stdin and stdout, and tries to leave its isolation.

A prompt is one JSON object: `{"act": "attack", "targets": {...}}` performs all actions and writes their results to
`results.json` in the working directory of the session. Each result is `[outcome, detail]`:

- `allowed`: the harm happened;
- `denied`: the system refused the action, or its object is invisible;
- `unavailable`: this machine lacks the feature.

Every action runs in its own process, so a fatal signal ends only the action. The package `actions` contains them.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import actions  # noqa: E402
import links  # noqa: E402
import queues  # noqa: E402
import walk  # noqa: E402

queues.register(actions.action, actions.needs_secret)

LIMIT_SECONDS = 10


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line) if line.strip() else {}


def call(method, params):
    """Sends a request to the client and returns its result, or raises PermissionError."""
    send({"id": "own", "method": method, "params": params})
    while True:
        message = receive()
        if message.get("id") == "own" and "method" not in message:
            if "error" in message:
                raise PermissionError(message["error"]["message"])
            return message["result"]


def isolated(action, targets):
    """Runs an action in a child process. The result arrives over a pipe."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        result = outcome(action, targets)
        os.write(writer, json.dumps(result).encode())
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], LIMIT_SECONDS)
    text = os.read(reader, 65536) if ready else b""
    os.close(reader)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if text:
        return json.loads(text)
    return ["denied", f"the process ended with the status {status}" if ready else "no end"]


def outcome(action, targets):
    try:
        return ["allowed", str(action(targets))[:200]]
    except actions.Unavailable as error:
        return ["unavailable", str(error)]
    except OSError as error:
        return ["denied", str(error)[:200]]
    except Exception as error:  # A defect of the action is visible in the table.
        return ["broken", f"{type(error).__name__}: {error}"[:200]]


def in_terminal(session, words, cwd, env=()):
    """Runs a program in a terminal of the client, and returns its output."""
    params = {"sessionId": session, "command": words[0], "args": words[1:], "env": list(env)}
    if cwd:
        params["cwd"] = cwd
    terminal = {"sessionId": session, "terminalId": call("terminal/create", params)["terminalId"]}
    call("terminal/wait_for_exit", terminal)
    return call("terminal/output", terminal)


def through_client(session, targets):
    """The actions in which the gateway accesses files for the agent."""

    def read(path):
        answer = call("fs/read_text_file", {"sessionId": session, "path": path})
        if targets["secret"] not in answer["content"]:
            raise PermissionError("other content")
        return "read"

    def through_link(targets):
        link = os.path.join(targets["cwd"], "link")
        if not os.path.islink(link):
            os.symlink(targets["privateFile"], link)
        return read(link)

    def by_terminal(targets):
        output = in_terminal(session, ["cat", targets["privateFile"]], targets["cwd"])["output"]
        if targets["secret"] not in output:
            raise PermissionError(output)
        return "read"

    return {
        "read a private file through the gateway": lambda targets: read(targets["privateFile"]),
        "read a private file through a planted link and the gateway": through_link,
        "read a private file in a terminal of the gateway": by_terminal,
    }


def attack(session, targets):
    results = {name: isolated(action, targets) for name, action in actions.ALL.items()}
    for name, action in through_client(session, targets).items():
        results[name] = outcome(action, targets)
    path = os.path.join(targets["cwd"], "results.json")
    with open(path + ".new", "w") as file:
        json.dump(results, file)
    os.rename(path + ".new", path)


def daemon(targets):
    """Leaves a process in its own session, without its parents, that ignores signals and binds a port in a loop."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            for descriptor in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            actions.bind_in_a_loop(targets)
        os._exit(0)
    while not os.path.exists(targets["daemonFile"]):
        time.sleep(0.01)


def fork(count):
    """Starts processes that stay. Returns their number, and the error that ended the loop."""
    for started in range(count):
        try:
            if os.fork() == 0:
                signal.pause()
        except OSError as error:
            return [started, error.errno]
    return [count, None]


def say(session, path):
    """Sends the names in a folder to the client: the agent cannot write to the folder of its session."""
    try:
        text = " ".join(sorted(os.listdir(path)))
    except OSError as error:
        text = str(error)
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send({"method": "session/update", "params": {"sessionId": session, "update": update}})


def prompt(session, text):
    order = json.loads(text)
    targets = order.get("targets", {})
    if order["act"] == "attack":
        attack(session, targets)
    elif order["act"] == "say":
        say(session, order["path"])
    elif order["act"] in links.ORDERS:
        links.ORDERS[order["act"]](order)
    elif order["act"] in walk.ORDERS:
        walk.ORDERS[order["act"]](order)
    elif order["act"] == "daemon":
        daemon(targets)
    elif order["act"] == "look":
        found = {path: sorted(os.listdir(path)) if os.path.isdir(path) else None for path in order["paths"]}
        with open(os.path.join(order["cwd"], "looked.json"), "w") as file:
            json.dump(found, file)
    elif order["act"] == "run":
        ended = subprocess.run(order["command"], capture_output=True, text=True, timeout=60)
        with open(os.path.join(order["cwd"], "ran.json"), "w") as file:
            json.dump([ended.returncode, ended.stdout, ended.stderr], file)
    elif order["act"] == "fork":
        with open(os.path.join(order["cwd"], "forked.json"), "w") as file:
            json.dump(fork(order["count"]), file)
    elif order["act"] == "call":
        result = call(order["method"], {"sessionId": session, **order["params"]})
        with open(os.path.join(order["cwd"], "called.json"), "w") as file:
            json.dump(result, file)
    elif order["act"] == "terminal":
        cwd = order["cwd"] if order.get("named", True) else None
        ended = in_terminal(session, order["command"], cwd, order["env"])
        with open(os.path.join(order["cwd"], "terminal.json"), "w") as file:
            json.dump(ended, file)
    elif order["act"] == "sleep":
        open(os.path.join(order["cwd"], "sleeps"), "w").close()
        time.sleep(60)
    elif order["act"] == "exit":
        os._exit(order["code"])
    elif order["act"] == "signal":
        os.kill(os.getpid(), order["number"])
        time.sleep(60)


def answer(message):
    method, params = message.get("method"), message.get("params")
    if method == "initialize":
        return {"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"additionalDirectories": {}}}, "authMethods": []}
    if method == "session/new":
        return {"sessionId": f"s{time.monotonic_ns()}"}
    if method == "session/prompt":
        prompt(params["sessionId"], params["prompt"][0]["text"])
        return {"stopReason": "end_turn"}
    return {}


if __name__ == "__main__":
    # Before any file is open.
    opened = [name for name in os.listdir("/proc/self/fd") if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}")]
    os.environ["HOSTILE_DESCRIPTORS"] = ",".join(opened)
    while True:
        message = receive()
        if "id" in message and "method" in message:
            send({"id": message["id"], "result": answer(message)})
