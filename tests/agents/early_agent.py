"""A scripted agent that speaks an early protocol instead of ACP. It handles one message at a time.

    early_agent.py LOG [FLAG ...]

LOG receives every line of the client. Without flags the agent has the early names of methods. Flags:

    modern       the method names of ACP: session/new, session/prompt, session/cancel
    delta        texts are updates `message_delta` (modern)
    no-session   updates have no `sessionId` (modern)
    content      rejects a prompt with the member `prompt` (modern)
    number       answers `initialize` with the text "1.0" with an error
    crash        ends at `initialize` with the text "1.0"
    auth         creates sessions only after a sign-in, for which it runs in a terminal with the argument `login`

The first word of a prompt is a command: see the functions `do_...`. Other prompts are echoed.
"""

import json
import os
import sys
import time

LOG, FLAGS = sys.argv[1], set(sys.argv[2:])
MODERN = "modern" in FLAGS
SESSION = f"early-{os.getpid()}"
SIGNED_IN = os.path.join(os.environ.get("HOME", "/tmp"), "signed-in")


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    with open(LOG, "a") as log:
        log.write(line)
    return json.loads(line)


def update(modern, early):
    if not MODERN:
        return send({"method": "agent/update", "params": {"sessionId": SESSION, **early}})
    session = {} if "no-session" in FLAGS else {"sessionId": SESSION}
    send({"method": "session/update", "params": {**session, "update": modern}})


def say(text):
    block = {"type": "text", "text": text}
    if "delta" in FLAGS:
        modern = {"sessionUpdate": "message_delta", "content": [block]}
    else:
        modern = {"type": "agentMessageChunk", "content": block}
    update(modern, {"updateType": "response", "content": text})


def do_echo(rest):
    say(rest[: len(rest) // 2])
    say(rest[len(rest) // 2 :])
    return {"content": rest}


def do_whole(rest):
    return {"content": rest}


def do_think(rest):
    update({"type": "agentThoughtChunk", "content": "let me see"}, {"updateType": "thinking", "content": "let me see"})
    say(rest)
    return {"content": rest}


def do_tool(rest):
    use = {"type": "toolUse", "id": "call-1", "name": "read_file", "input": {"path": rest}}
    update({"type": "agentMessageChunk", "content": use}, {"updateType": "tool_call", "data": use})
    if not MODERN:
        send({"method": "agent/toolCall", "params": {"sessionId": SESSION, **use}})
        send({"method": "agent/toolResult", "params": {"sessionId": SESSION, "id": "call-1", "output": "contents", "success": True}})
    modern = {"sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "completed", "content": "contents"}
    update(modern, {"updateType": "tool_result", "content": "contents", "data": {"id": "call-1"}})
    say("done")
    return {"content": "done"}


def do_ask(rest):
    params = {
        "title": "Run a command",
        "message": rest,
        "options": [{"optionId": "go", "label": "Allow"}, {"optionId": "halt", "label": "Deny"}],
    }
    send({"id": "ask-1", "method": "session/request_permission", "params": params})
    while True:
        answer = read()
        if answer.get("id") == "ask-1":
            break
    say("permission: " + answer["result"]["outcome"].get("optionId", "none"))
    return {}


def do_wait(rest):
    say("waiting")
    while True:
        message = read()
        if message.get("method") in ("agent/cancelSession", "session/cancel"):
            if "id" in message:
                send({"id": message["id"], "result": {"cancelled": True}})
            return {"content": "waiting"}


def do_deaf(rest):
    say("working")
    time.sleep(600)


def do_fail(rest):
    return {"error": rest}


def do_pid(rest):
    return {"content": str(os.getpid())}


def do_cwd(rest):
    return {"content": os.getcwd()}


def do_garbage(rest):
    sys.stdout.write("noise\n")
    send({"method": "agent/update", "params": {"sessionId": SESSION}})
    say("after")
    return {"content": "after"}


def prompt_of(params):
    if not MODERN:
        return params["prompt"]
    if "content" in FLAGS and "prompt" in params:
        raise ValueError("unknown member `prompt`")
    return "".join(block["text"] for block in params["content"] if block["type"] == "text")


def initialize(params):
    if params["protocolVersion"] == "1.0":
        if "crash" in FLAGS:
            sys.exit("'<' not supported between instances of 'int' and 'str'")
        if "number" in FLAGS:
            raise TypeError("'<' not supported between instances of 'int' and 'str'")
    info = {"name": "early-agent", "version": "0.1"}
    shell = {"type": "terminal", "id": "shell", "name": "Log in here", "args": ["login"]}
    methods = {"authMethods": [shell]} if "auth" in FLAGS else {}
    if MODERN:
        capabilities = {"promptTypes": {"image": True}, "mcp": {"http": True}}
        return {"protocolVersion": 1, "agentInfo": info, "agentCapabilities": capabilities, **methods}
    return {"protocolVersion": "1.0", "capabilities": {"streaming": True}, "serverInfo": info, **methods}


def handle(method, params):
    if method == "initialize":
        return initialize(params)
    if method == ("session/new" if MODERN else "agent/createSession"):
        params["cwd" if MODERN else "workspaceDir"]
        if "auth" in FLAGS and not os.path.exists(SIGNED_IN):
            raise PermissionError("Authentication required")
        return {"sessionId": SESSION}
    if method == ("session/prompt" if MODERN else "agent/prompt"):
        text = prompt_of(params)
        command, _, rest = text.partition(" ")
        return globals().get(f"do_{command}", lambda _: do_echo(text))(rest)
    if method == "agent/cancelSession" and not MODERN:
        return {"cancelled": False}
    if method == "shutdown" and not MODERN:
        return None
    raise LookupError(f"Unknown method: {method}")


def login():
    if input("the word: ") != "sesame":
        sys.exit("that is another word")
    open(SIGNED_IN, "w").close()
    print("welcome")


def main():
    while "login" not in FLAGS:
        message = read()
        if "id" not in message or "method" not in message:
            continue
        try:
            send({"id": message["id"], "result": handle(message["method"], message.get("params"))})
        except LookupError as error:
            code = -32601 if type(error) is LookupError else -32602
            send({"id": message["id"], "error": {"code": code, "message": str(error)}})
        except ValueError as error:
            send({"id": message["id"], "error": {"code": -32602, "message": str(error)}})
        except PermissionError as error:
            send({"id": message["id"], "error": {"code": -32000, "message": str(error)}})
        except TypeError as error:
            send({"id": message["id"], "error": {"code": -32603, "message": str(error)}})
        if message["method"] == "initialize" and not MODERN:
            send({"method": "initialized", "params": {}})
    login()


main()
