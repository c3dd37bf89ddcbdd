"""Hooks with facts that openapi.json does not contain: ids of existing sessions, and responses that never end."""

import json
import os
import random
import urllib.request

import jsonschema_rs
import schemathesis

URL = os.environ["GATEWAY_URL"]
KEY = os.environ["GATEWAY_KEY"]
COUNT = os.environ["GATEWAY_COUNT"]

# A constant seed selects the requests for existing sessions, so that a failure can be reproduced.
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
    """Returns an existing session; a new session for each request that ends its session."""
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
        # The gateway waits for the full duration, so one second is enough.
        if name.lower() == "prefer" and "wait" in str(case.headers[name]):
            case.headers[name] = "wait=1"
        # A stream that follows never ends. The stream of a turn ends with the turn, which may wait for a person.
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


def close(schema):
    """Removes the values that the document does not list from its open enums and unions."""
    if isinstance(schema, dict):
        known = [one for one in schema.get("anyOf", []) if one.get("$ref", "").startswith("#/components/schemas/Known")]
        if known:
            schema["anyOf"] = known
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            close(part)


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Client generators expect the schema of an event's `data`, and the document contains it. Schemathesis expects the schema of
    the whole event. This hook replaces the schema, and `stream_events_fit_their_schema` checks the data."""
    global session_event
    # The document lists the values of today and permits others. The gateway of today must not send others.
    close(raw_schema)
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
    """Checks that each `data` of a stream is a SessionEvent."""
    if not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return
    for line in response.text.splitlines():
        if line.startswith("data: "):
            errors = [error.message for error in session_event.iter_errors(json.loads(line[6:]))]
            assert not errors, f"{line}: {errors}"


@schemathesis.check
def no_fault_of_the_gateway(ctx, response, case):
    """Accepts 501 (the agent does not support the method). Every other 5xx is a defect."""
    if response.status_code >= 500:
        code = response.json().get("code")
        assert (response.status_code, code) == (501, "agent_unsupported"), (
            f"{response.status_code} {code} is the gateway's own fault"
        )


@schemathesis.hook
def after_call(context, case, response):
    with open(COUNT, "ab") as count:
        count.write(b".")
