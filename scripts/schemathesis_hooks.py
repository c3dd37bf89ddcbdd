"""What a generator of requests cannot know of the gateway: which ids live, and that some answers never end."""

import json
import os
import random
import urllib.request

import jsonschema_rs
import schemathesis

URL = os.environ["GATEWAY_URL"]
KEY = os.environ["GATEWAY_KEY"]
COUNT = os.environ["GATEWAY_COUNT"]

# The choice of which case meets a live session repeats with the seed of nothing else, so that a failure can be found again.
chance = random.Random(1)
live = []


def new_session():
    request = urllib.request.Request(
        f"{URL}/v1/sessions",
        data=json.dumps({"agent": "demo"}).encode(),
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["sessionId"]


def session_for(method):
    """A session that exists; one of its own for what ends it."""
    if method in ("DELETE", "POST") or len(live) < 3:
        session = new_session()
        if method != "DELETE":
            live.append(session)
        return session
    return chance.choice(live[-20:])


def first_parameter(path):
    return path.split("{", 1)[1].split("}", 1)[0]


@schemathesis.hook
def before_call(context, case, kwargs):
    path, method = case.operation.path, case.method.upper()
    parameters = dict(case.path_parameters or {})
    if path.startswith("/v1/sessions/{") and chance.random() < 0.5:
        parameters[first_parameter(path)] = session_for(method)
        case.path_parameters = parameters
    if path.startswith("/v1/agents/{") and chance.random() < 0.5:
        parameters[first_parameter(path)] = "demo"
        case.path_parameters = parameters
    if path == "/v1/sessions" and method == "POST" and isinstance(case.body, dict) and chance.random() < 0.5:
        case.body = {**case.body, "agent": "demo"}
        case.body.pop("cwd", None)
    for name in list(case.headers or {}):
        # A wait is honoured to its end: a second of it shows as much as five minutes.
        if name.lower() == "prefer" and "wait" in str(case.headers[name]):
            case.headers[name] = "wait=1"
        # A stream that follows never ends; a turn's ends with the turn, which may wait for a person.
        if name.lower() == "accept" and ("event-stream" in case.headers[name] or "ndjson" in case.headers[name]):
            if path.endswith("/events"):
                case.query = {**(case.query or {}), "follow": "false"}
            else:
                case.headers[name] = "application/json"
    if path.endswith("/events/stream"):
        case.query = {**(case.query or {}), "follow": "false"}
    if path.endswith("/prompts/stream") and "/permission" in json.dumps(case.body, default=str):
        case.body = {**case.body, "prompt": "Hello"}


session_event = None


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """The document gives the schema of the `data` of an event, as generators of clients read it. Schemathesis takes it for the
    schema of the whole event, so it gets one of that, and `stream_events_fit_their_schema` looks at the data."""
    global session_event
    reference = {"$ref": "#/components/schemas/SessionEvent"}
    session_event = jsonschema_rs.validator_for({**reference, "components": raw_schema["components"]})
    for operations in raw_schema["paths"].values():
        for operation in operations.values():
            for response in operation["responses"].values():
                stream = response.get("content", {}).get("text/event-stream")
                if stream is not None:
                    assert stream["schema"] == reference, stream
                    stream["schema"] = {"type": "object"}
                    stream.pop("example", None)


@schemathesis.check
def stream_events_fit_their_schema(ctx, response, case):
    """Each `data` of a stream is a SessionEvent."""
    if not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return
    for line in response.text.splitlines():
        if line.startswith("data: "):
            errors = [error.message for error in session_event.iter_errors(json.loads(line[6:]))]
            assert not errors, f"{line}: {errors}"


@schemathesis.check
def no_fault_of_the_gateway(ctx, response, case):
    """501 says what an agent cannot do; every other 5xx is a defect, since there is room for all sessions."""
    if response.status_code >= 500:
        code = response.json().get("code")
        assert (response.status_code, code) == (501, "agent_unsupported"), (
            f"{response.status_code} {code} is the gateway's own fault"
        )


@schemathesis.hook
def after_call(context, case, response):
    with open(COUNT, "ab") as count:
        count.write(b".")
