"""The stock Python clients: the SDK of OpenAI, its agents, and LiteLLM. Prints what they deliver, as JSON.

    python openai_python.py URL KEY SCENARIO PROMPT
"""

import asyncio
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import httpx
import openai

URL, KEY, SCENARIO, PROMPT = sys.argv[1:5]
MODEL = "demo"


def client(**options):
    return openai.OpenAI(base_url=URL, api_key=KEY, **options)


def user(content):
    return {"role": "user", "content": content}


def thought(delta):
    return getattr(delta, "reasoning_content", None) or ""


def models():
    listed = [model.id for model in client().models.list()]
    return {"ids": listed, "one": client().models.retrieve(listed[0]).id}


def whole():
    completion = client().chat.completions.create(model=MODEL, messages=[user(PROMPT)])
    message = completion.choices[0].message
    return {"text": message.content, "reasoning": thought(message), "usage": completion.usage.to_dict()}


def streamed():
    options = {"include_usage": True}
    seen = {"text": "", "reasoning": "", "usage": None}
    stream = client().chat.completions.create(model=MODEL, messages=[user(PROMPT)], stream=True, stream_options=options)
    for chunk in stream:
        seen["usage"] = chunk.usage.to_dict() if chunk.usage else seen["usage"]
        for choice in chunk.choices:
            seen["text"] += choice.delta.content or ""
            seen["reasoning"] += thought(choice.delta)
    return seen


class LosesFirstResponse(httpx.HTTPTransport):
    """A proxy that answers 503 although the gateway has the request."""

    requests = 0

    def handle_request(self, request):
        self.requests += 1
        response = super().handle_request(request)
        if self.requests > 1:
            return response
        response.close()
        return httpx.Response(503, request=request)


def retried():
    transport = LosesFirstResponse()
    with client(http_client=httpx.Client(transport=transport)) as retrying:
        raw = retrying.chat.completions.with_raw_response.create(model=MODEL, messages=[user(PROMPT)])
        text = raw.parse().choices[0].message.content
        return {"requests": transport.requests, "text": text, "session": raw.headers["x-acp-session-id"]}


def error():
    try:
        client().chat.completions.create(model="nobody", messages=[user(PROMPT)])
    except openai.APIStatusError as failed:
        return {"name": type(failed).__name__, "status": failed.status_code, "code": failed.code}
    return {}


def response():
    with client().responses.stream(model=MODEL, input=PROMPT) as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    return {"first": types[0], "last": types[-1], "text": final.output_text, "status": final.status}


def answered(approve):
    openai_client = client()
    first = openai_client.responses.create(model=MODEL, input=PROMPT)
    [request] = [item for item in first.output if item.type == "mcp_approval_request"]
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
    second = openai_client.responses.create(model=MODEL, previous_response_id=first.id, input=[answer])
    return {"arguments": json.loads(request.arguments), "status": second.status, "text": second.output_text}


def resumed():
    """The connection is lost after some frames, and the client reads on from there."""
    openai_client = client()
    stream = openai_client.responses.create(model=MODEL, input=PROMPT, stream=True, background=True)
    numbers, response_id = [], None
    for event in stream:
        response_id = response_id or event.response.id
        numbers.append(event.sequence_number)
        if len(numbers) == 12:
            break
    stream.close()
    rest = openai_client.responses.retrieve(response_id, stream=True, starting_after=numbers[-1])
    rest = [(event.sequence_number, event.type) for event in rest]
    return {"numbers": numbers + [number for number, _ in rest], "last": rest[-1][1]}


def cancelled():
    openai_client = client()
    begun = openai_client.responses.create(model=MODEL, input=PROMPT, background=True)
    return {"begun": begun.status, "cancelled": openai_client.responses.cancel(begun.id).status}


def agents():
    """An agent of the agents SDK, over both protocols."""
    from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner

    async def run(kind):
        openai_client = openai.AsyncOpenAI(base_url=URL, api_key=KEY)
        agent = Agent(name="remote", model=kind(model=MODEL, openai_client=openai_client))
        streamed = Runner.run_streamed(agent, PROMPT)
        async for _ in streamed.stream_events():
            pass
        return {"text": streamed.final_output, "items": [type(item).__name__ for item in streamed.new_items]}

    async def both():
        return {
            "chat": await run(OpenAIChatCompletionsModel),
            "responses": await run(OpenAIResponsesModel),
        }

    return asyncio.run(both())


def litellm():
    import litellm

    options = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": KEY, "messages": [user(PROMPT)]}
    completion = litellm.completion(**options)
    seen = {"whole": completion.choices[0].message.content, "text": "", "reasoning": ""}
    for chunk in litellm.completion(**options, stream=True):
        delta = chunk.choices[0].delta
        seen["text"] += delta.content or ""
        seen["reasoning"] += thought(delta)
    return seen


SCENARIOS = {
    "models": models,
    "whole": whole,
    "streamed": streamed,
    "retried": retried,
    "error": error,
    "response": response,
    "approve": lambda: answered(True),
    "deny": lambda: answered(False),
    "resumed": resumed,
    "cancelled": cancelled,
    "agents": agents,
    "litellm": litellm,
}

print(json.dumps(SCENARIOS[SCENARIO]()))
