"""The main path with the client of openapi-python-client.

The generator has no reader of Server-Sent Events: its `_get_kwargs` builds the request, httpx-sse reads the events.
"""

import json
import os
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any
from uuid import UUID

from generated.client import AuthenticatedClient
from generated.client.api.events import prompt_events_stream
from generated.client.api.prompts import create_prompt, create_prompt_stream
from generated.client.api.requests import answer_permission
from generated.client.api.sessions import create_session, delete_session, get_session, get_transcript
from generated.client.models import (
    AudioBlock,
    CreatePrompt,
    CreateSession,
    ImageBlock,
    KnownRole,
    PermissionChoice,
    Problem,
    Prompt,
    PromptCompletedEvent,
    RequestCreatedEvent,
    ResourceBlock,
    ResourceLinkBlock,
    Session,
    SessionUpdateEvent,
    TextBlock,
    TextBlockType,
    Transcript,
    TurnMessage,
    TurnRequest,
    UnknownTurnItem,
)
from httpx_sse import EventSource

Block = AudioBlock | ImageBlock | ResourceBlock | ResourceLinkBlock | TextBlock
client = AuthenticatedClient(base_url=os.environ["GATEWAY_URL"], token=os.environ["GATEWAY_KEY"])


def events(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The `data` of each event of a stream until the stream ends."""
    with client.get_httpx_client().stream(**request, timeout=30) as answer:
        assert answer.status_code == HTTPStatus.OK, answer.read()
        # `answer.iter_lines()` would also end lines at U+2028, U+2029 and U+0085, which a text can contain.
        for event in EventSource(answer).iter_sse():
            if event.data:
                yield json.loads(event.data)


created = create_session.sync(client=client, body=CreateSession(agent="demo", title="openapi-python-client"))
assert isinstance(created, Session), created
session = created.session_id

blocks: list[Block] = [TextBlock(type_=TextBlockType.TEXT, text="/permission")]
begun = create_prompt.sync(session, client=client, body=CreatePrompt(prompt=blocks))
assert isinstance(begun, Prompt), begun
answered = 0
completed = False
for event in events(prompt_events_stream._get_kwargs(session, begun.prompt_id)):
    if event["type"] == "request.created":
        asked = RequestCreatedEvent.from_dict(event)
        option = next(option for option in asked.params.options or [] if option.kind == "allow_once")
        choice = PermissionChoice(option_id=option.option_id)
        answer = answer_permission.sync_detailed(session, asked.request_id, client=client, body=choice)
        assert answer.status_code == HTTPStatus.NO_CONTENT, answer
        answered += 1
    elif event["type"] == "prompt.completed":
        completed = PromptCompletedEvent.from_dict(event).stop_reason == "end_turn"
assert answered == 1 and completed

text = ""
completed = False
prompt = "Hello\u2028\u2029\x85"
for event in events(create_prompt_stream._get_kwargs(session, body=CreatePrompt(prompt=prompt))):
    completed |= event["type"] == "prompt.completed"
    if event["type"] == "prompt.started":
        assert event["prompt"][0]["text"] == prompt, event
    if event["type"] == "session.update":
        update = SessionUpdateEvent.from_dict(event).update
        if update.session_update == "agent_message_chunk":
            text += TextBlock.from_dict(update["content"]).text
assert text and completed

transcript = get_transcript.sync(session, client=client)
assert isinstance(transcript, Transcript), transcript
second, first = transcript.turns
request = next(item for item in first.items if isinstance(item, TurnRequest))
assert request.resolution == "answered", request
messages = [item for item in second.items if isinstance(item, TurnMessage)]
message = next(message for message in messages if message.role == KnownRole.AGENT)
block = message.content[0]
assert isinstance(block, TextBlock) and text.startswith(block.text), message

missing = get_session.sync(UUID("01938c5e-7a3b-7c4d-8e5f-0123456789ab"), client=client)
assert isinstance(missing, Problem) and missing.code == "not_found", missing

# A gateway of tomorrow has more values of enums and more members of unions. A closed enum or union raises an error here.
later = Problem.from_dict({**missing.to_dict(), "code": "later_code"})
assert later.code == "later_code", later
known = transcript.to_dict()
known["turns"][0]["status"] = "later_status"
known["turns"][0]["items"].append({"type": "later_item", "more": 1})
later_turn = Transcript.from_dict(known).turns[0]
assert later_turn.status == "later_status", later_turn
assert isinstance(later_turn.items[-1], UnknownTurnItem), later_turn.items[-1]
assert later_turn.items[-1].to_dict() == {"type": "later_item", "more": 1}

assert delete_session.sync_detailed(session, client=client).status_code == HTTPStatus.NO_CONTENT
print("openapi-python-client: a turn, its stream, a permission and the transcript")
