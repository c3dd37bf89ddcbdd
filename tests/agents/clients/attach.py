"""Sends prompts through `acp-gateway attach`, and prints updates and results as JSON: python attach.py URL AGENT PROMPT..."""

import asyncio
import json
import os
import sys

from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.interfaces import Client
from acp.schema import AllowedOutcome, RequestPermissionResponse


def out(line):
    print(json.dumps(line), flush=True)


class Example(Client):
    async def session_update(self, session_id, update, **kwargs):
        out({"update": update.model_dump(mode="json", by_alias=True, exclude_none=True)})

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        outcome = AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return RequestPermissionResponse(outcome=outcome)


async def main(url, agent, *prompts):
    # The bridge reads the key from the variable ACP_GATEWAY_KEY.
    command = ["acp-gateway", "attach", "--url", url, "--agent", agent]
    async with spawn_agent_process(Example(), *command, env=os.environ) as (gateway, _):
        await gateway.initialize(protocol_version=PROTOCOL_VERSION)
        session = await gateway.new_session(cwd=os.getcwd(), mcp_servers=[])
        out({"sessionId": session.session_id})
        for prompt in prompts:
            try:
                done = await gateway.prompt(session_id=session.session_id, prompt=[text_block(prompt)])
                out({"stopReason": done.stop_reason})
            except RequestError as error:
                out({"error": str(error)})


asyncio.run(main(*sys.argv[1:]))
