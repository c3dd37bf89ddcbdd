"""A scripted command with the protocol of the Claude Code CLI (`--output-format stream-json`).

    claude_cli.py [--log FILE] [--fail CODE] [--silent-version] [ARGUMENT OF THE CLI ...]

A session is a file in the folder of its HOME, so `--resume` finds the sessions of this HOME. `--log` appends a line for each
start. `--fail` ends each start with this code, and with a text on stderr. `--silent-version` ignores `--version`.

The first word of a prompt is a command: see the functions `do_...`, which return true if they have ended the turn. Other
prompts are echoed.
"""

import json
import os
import signal
import sys
import time
import uuid

ARGUMENTS = sys.argv[1:]


def option(name):
    return ARGUMENTS[ARGUMENTS.index(name) + 1] if name in ARGUMENTS else None


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def log(text):
    if option("--log"):
        with open(option("--log"), "a") as file:
            file.write(text + "\n")


def result(**members):
    send({"type": "result", "subtype": "success", "is_error": False, "stop_reason": "end_turn", "total_cost_usd": 0.5,
          "usage": {"input_tokens": 1, "output_tokens": 2}, **members})


def say(text):
    message = str(uuid.uuid4())
    send({"type": "stream_event", "event": {"type": "message_start", "message": {"id": message}}})
    block = {"type": "text", "text": ""}
    send({"type": "stream_event", "event": {"type": "content_block_start", "index": 0, "content_block": block}})
    delta = {"type": "text_delta", "text": text}
    send({"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": delta}})
    send({"type": "assistant", "message": {"id": message, "content": [{"type": "text", "text": text}]}})


def do_permission(_):
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "tool-1"}
    send({"type": "control_request", "request_id": "ask-1", "request": request})
    answer = read()
    while answer["type"] != "control_response":
        answer = read()
    say("permission: " + answer["response"]["response"]["behavior"])


def do_pwd(_):
    say(os.getcwd())


def do_env(name):
    say(os.environ.get(name, "none"))


def do_noise(text):
    """Writes lines that have no meaning in the protocol."""
    sys.stdout.write(f"{text}\n" + json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}) + "\n")
    say("noise")


def do_long(size):
    sys.stdout.write("x" * int(size) + "\n")
    sys.stdout.flush()


def do_slow(_):
    """Waits for an interrupt."""
    say("waiting")
    while True:
        message = read()
        if message.get("request", {}).get("subtype") == "interrupt":
            respond(message, {})
            result(subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
            return True


def do_exit(code):
    sys.stderr.write("the command ends here\n")
    sys.stderr.flush()
    os._exit(int(code))


def do_kill(_):
    os.kill(os.getpid(), signal.SIGKILL)


def do_length(text):
    say(str(len(text)))


def do_write(size):
    """Uses a tool whose input is large."""
    tool = {"type": "tool_use", "id": "write-1", "name": "Write", "input": {"file_path": "/made", "content": "x" * int(size)}}
    send({"type": "assistant", "message": {"id": str(uuid.uuid4()), "content": [tool]}})


def do_graceful(path):
    """Ignores the end of its input, and ends at TERM."""
    def end(*_):
        open(path, "w").close()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    say("graceful")
    result()
    while True:
        time.sleep(60)


def do_stubborn(_):
    """Ignores the end of its input and TERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("stubborn")
    result()
    while True:
        time.sleep(60)


def respond(message, response):
    send({"type": "control_response",
          "response": {"subtype": "success", "request_id": message["request_id"], "response": response}})


def prompt(message):
    content = message["message"]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    word, _, rest = text.partition(" ")
    command = globals().get("do_" + word)
    if command is None:
        say(rest if word == "echo" else text)
        result()
    elif not command(rest):
        result()


def main():
    if "--version" in ARGUMENTS and "--silent-version" not in ARGUMENTS:
        log("version")
        return print("9.8.7 (Claude Code)")
    log("start " + " ".join(ARGUMENTS[-2:]))
    if option("--fail"):
        sys.stderr.write("cannot start today\n")
        sys.exit(int(option("--fail")))
    folder = os.path.join(os.environ.get("HOME", "/tmp"), "sessions")
    os.makedirs(folder, exist_ok=True)
    resumed = option("--resume")
    if resumed and not os.path.exists(os.path.join(folder, resumed)):
        read()
        result(subtype="error_during_execution", is_error=True,
               errors=[f"No conversation found with session ID: {resumed}"])
        sys.exit(1)
    open(os.path.join(folder, resumed or option("--session-id") or "none"), "a").close()
    while True:
        message = read()
        if message["type"] == "control_request":
            respond(message, {"models": [{"value": "default", "displayName": "Default"}]})
        elif message["type"] == "user":
            prompt(message)


main()
