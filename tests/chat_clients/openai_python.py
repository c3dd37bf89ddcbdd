"""The stock Python clients: the SDK of OpenAI, its agents, and LiteLLM. Prints what they deliver, as JSON.

    python openai_python.py URL KEY SCENARIO PROMPT [MODEL]

`CLIENT:SCENARIO` plays a scenario of `chat_scenarios.py`. Its messages in PROMPT are separated by `|`.
"""

import asyncio
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import chat_scenarios
import httpx
import openai
from pydantic import BaseModel

URL, KEY, SCENARIO, PROMPT = sys.argv[1:5]
MODEL = sys.argv[5] if len(sys.argv) > 5 else "demo"


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


class City(BaseModel):
    name: str


def image(content):
    """The content of a message of chat completions."""
    if isinstance(content, str):
        return content
    text, url = content
    return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]


class Chat:
    """The SDK of OpenAI with chat completions. An application keeps the messages, also one that failed."""

    def __init__(self):
        self.client = client()
        self.messages = []

    def complete(self, **options):
        return self.client.chat.completions.create(model=MODEL, messages=self.messages, **options)

    def ask(self, content, stream):
        self.messages.append(user(image(content)))
        answer = self.complete(stream=stream)
        if stream:
            deltas = [chunk.choices[0].delta.content for chunk in answer if chunk.choices]
            text = "".join(delta or "" for delta in deltas)
        else:
            text = answer.choices[0].message.content
        self.messages.append({"role": "assistant", "content": text})
        return text

    def structured(self, text):
        return str(self.client.chat.completions.parse(model=MODEL, messages=[user(text)], response_format=City))


class LiteLlm(Chat):
    def complete(self, **options):
        import litellm

        return litellm.completion(model=f"openai/{MODEL}", api_base=URL, api_key=KEY, messages=self.messages, **options)

    def structured(self, text):
        self.messages.append(user(text))
        return str(self.complete(response_format=City))


class Responses:
    """The SDK of OpenAI with responses. The history is the output of each response."""

    def __init__(self):
        self.client = client()
        self.items = []

    def ask(self, content, stream):
        if not isinstance(content, str):
            text, url = content
            content = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": url}]
        self.items.append(user(content))
        final = self.client.responses.create(model=MODEL, input=self.items, stream=stream)
        if stream:
            # The last event has the whole response.
            *_, last = final
            final = last.response
        if final.error:
            raise RuntimeError(final.error.message)
        self.items += final.output
        return final.output_text

    def structured(self, text):
        return str(self.client.responses.parse(model=MODEL, input=text, text_format=City))


class Agents:
    """An agent of the agents SDK, with its list of items or with a session as the history."""

    def __init__(self, kind, has_session, tools=()):
        import agents

        self.run = agents.Runner
        self.model = getattr(agents, kind)(model=MODEL, openai_client=openai.AsyncOpenAI(base_url=URL, api_key=KEY))
        self.agent = agents.Agent(name="remote", model=self.model, tools=list(tools))
        self.session = agents.SQLiteSession("one") if has_session else None
        self.items = []
        # The HTTP client belongs to one loop.
        self.loop = asyncio.new_event_loop()

    async def turn(self, entry, stream):
        if not stream:
            return await self.run.run(self.agent, entry, session=self.session)
        streamed = self.run.run_streamed(self.agent, entry, session=self.session)
        async for _ in streamed.stream_events():
            pass
        return streamed

    def ask(self, content, stream):
        if not isinstance(content, str):
            text, url = content
            content = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": url}]
        new = [user(content)]
        self.items += new
        result = self.loop.run_until_complete(self.turn(new if self.session else self.items, stream))
        self.items = result.to_input_list()
        return result.final_output

    def structured(self, text):
        import agents

        self.agent = agents.Agent(name="remote", model=self.model, output_type=City)
        return str(self.ask(text, False))


def hosted(**options):
    """The tools of the gateway's agent, whose calls the agents SDK asks about."""
    from agents import HostedMCPTool

    tool = {"type": "mcp", "server_label": MODEL, "server_url": "https://example.com", "require_approval": "always"}
    return HostedMCPTool(tool_config=tool, **options)


def interrupted(approve, has_session, stream):
    """A run of the agents SDK is interrupted by a request, and goes on with the answer. Then another message follows."""
    agents_client = Agents("OpenAIResponsesModel", has_session, [hosted()])
    run = agents_client.loop.run_until_complete
    first = run(agents_client.turn(PROMPT, stream))
    [request] = first.interruptions
    state = first.to_state()
    (state.approve if approve else state.reject)(request)
    second = run(agents_client.turn(state, stream))
    agents_client.items = second.to_input_list()
    return {
        "name": request.raw_item.name,
        "arguments": json.loads(request.raw_item.arguments),
        "text": second.final_output,
        "items": [type(item).__name__ for item in second.new_items],
        "next": agents_client.ask("echo next", stream),
    }


def decided(approve, stream):
    """A function of the application answers the request."""
    decide = hosted(on_approval_request=lambda _: {"approve": approve})
    agents_client = Agents("OpenAIResponsesModel", False, [decide])
    return {"text": agents_client.ask(PROMPT, stream), "next": agents_client.ask("echo next", stream)}


CLIENTS = {
    "openai": Chat,
    "openai-responses": Responses,
    "litellm": LiteLlm,
    "agents": lambda: Agents("OpenAIResponsesModel", False),
    "agents-session": lambda: Agents("OpenAIResponsesModel", True),
    "agents-chat": lambda: Agents("OpenAIChatCompletionsModel", False),
    "agents-chat-session": lambda: Agents("OpenAIChatCompletionsModel", True),
}

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
    "interrupted": lambda: interrupted(True, False, False),
    "interrupted-streamed": lambda: interrupted(True, False, True),
    "interrupted-session": lambda: interrupted(True, True, False),
    "rejected": lambda: interrupted(False, False, False),
    "decided": lambda: decided(True, False),
    "decided-streamed": lambda: decided(True, True),
}

if ":" in SCENARIO:
    print(json.dumps(chat_scenarios.play(CLIENTS, URL, KEY, SCENARIO, PROMPT)))
else:
    print(json.dumps(SCENARIOS[SCENARIO]()))
