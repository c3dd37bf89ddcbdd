"""A client of the official Python SDK against /acp. Prints one line of JSON for each step.

    python acp_client.py http|ws URL KEY
"""

import asyncio
import json
import sys
from typing import Any

import httpx
from acp import RequestError, connect_to_agent, text_block
from acp.http import create_http_stream
from acp.interfaces import Client
from acp.ws import create_websocket_stream

TRANSPORT, URL, KEY = sys.argv[1:]
HEADERS = {"Authorization": f"Bearer {KEY}"}


class Seen(Client):
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.seen = {"chunks": 0, "user": 0, "options": [], "text": ""}

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **kwargs: Any) -> Any:
        self.seen["options"] = [option.option_id for option in options]
        return {"outcome": {"outcome": "selected", "optionId": "allow"}}

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        if update.session_update == "agent_message_chunk":
            self.seen["chunks"] += 1
            self.seen["text"] = update.content.text
        if update.session_update == "user_message_chunk":
            self.seen["user"] += 1

    async def print(self, step: str, **value: Any) -> None:
        # The SDK handles notifications in tasks of their own, beside the response.
        await asyncio.sleep(0.2)
        print(json.dumps({"step": step, **value, "seen": self.seen}), flush=True)
        self.clear()


async def connect():
    if TRANSPORT == "http":
        http = httpx.AsyncClient(timeout=None)
        return create_http_stream(URL, client=http, headers=HEADERS)
    return await create_websocket_stream(URL.replace("http", "ws", 1), headers=HEADERS)


async def run(steps) -> None:
    client, transport = Seen(), await connect()
    connection = connect_to_agent(client, transport)
    try:
        initialized = await connection.initialize(protocol_version=1)
        await client.print("initialize", loadSession=initialized.agent_capabilities.load_session)
        await steps(connection, client)
    finally:
        await connection.close()
        await transport.close()


async def main() -> None:
    session = ""

    async def first(connection, client) -> None:
        nonlocal session
        session = (await connection.new_session(cwd="", mcp_servers=[])).session_id
        await client.print("new", sessionId=session)
        turn = await connection.prompt(session_id=session, prompt=[text_block("stream n=20; permission")])
        await client.print("turn", stopReason=turn.stop_reason)
        hanging = asyncio.ensure_future(connection.prompt(session_id=session, prompt=[text_block("hang")]))
        await asyncio.sleep(0.2)
        await connection.cancel(session_id=session)
        await client.print("cancel", stopReason=(await hanging).stop_reason)
        for step, call in (
            ("outside", lambda: connection.new_session(cwd="/etc", mcp_servers=[])),
            ("unknown", lambda: connection.load_session(
                cwd="/", session_id="00000000-0000-7000-8000-000000000000", mcp_servers=[])),
        ):
            try:
                await call()
                await client.print(step, error=None)
            except RequestError as error:
                await client.print(step, error={"code": error.code, "message": str(error)})

    async def second(connection, client) -> None:
        await connection.load_session(cwd="/", session_id=session, mcp_servers=[])
        await client.print("load")
        turn = await connection.prompt(session_id=session, prompt=[text_block("stream n=3; echo é☃😀")])
        await client.print("again", stopReason=turn.stop_reason)

    async def third(connection, client) -> None:
        await connection.resume_session(cwd="/", session_id=session, mcp_servers=[])
        await client.print("resume")
        turn = await connection.prompt(session_id=session, prompt=[text_block("echo last")])
        await client.print("resumed", stopReason=turn.stop_reason)

    for steps in (first, second, third):
        await run(steps)


asyncio.run(main())
