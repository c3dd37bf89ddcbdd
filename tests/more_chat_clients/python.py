"""The stock Python clients with large installations: Pydantic AI, LangChain and `llm`. Prints what they deliver, as JSON.

    python python.py URL KEY CLIENT:SCENARIO PROMPT [MODEL]

The scenarios are those of `../chat_clients/chat_scenarios.py`. The messages in PROMPT are separated by `|`.
"""

import base64
import json
import os
import pathlib
import sys
import tempfile

from pydantic import BaseModel

sys.path.append(str(pathlib.Path(__file__).parent.parent / "chat_clients"))
import chat_scenarios

URL, KEY, SCENARIO, PROMPT = sys.argv[1:5]
MODEL = sys.argv[5] if len(sys.argv) > 5 else "demo"


class City(BaseModel):
    name: str


def picture_bytes(url):
    return base64.b64decode(url.partition(",")[2])


class PydanticAi:
    """The history is `message_history`. A message that failed is not in it."""

    def __init__(self, kind):
        from pydantic_ai.models import openai
        from pydantic_ai.providers.openai import OpenAIProvider

        self.model = getattr(openai, kind)(MODEL, provider=OpenAIProvider(base_url=URL, api_key=KEY))
        self.history = []

    def ask(self, content, stream, **options):
        from pydantic_ai import Agent, BinaryContent

        agent = Agent(self.model, **options)
        if not isinstance(content, str):
            text, url = content
            content = [text, BinaryContent(data=picture_bytes(url), media_type="image/png")]
        if stream:
            result = agent.run_stream_sync(content, message_history=self.history)
            *_, text = result.stream_text()
        else:
            result = agent.run_sync(content, message_history=self.history)
            text = result.output
        self.history = result.all_messages()
        return text

    def structured(self, text):
        from pydantic_ai import NativeOutput

        return str(self.ask(text, False, output_type=NativeOutput(City)))


class LangChain:
    """The history is a list of messages, which an application keeps, also with one that failed."""

    def __init__(self, **options):
        from langchain_openai import ChatOpenAI

        self.model = ChatOpenAI(model=MODEL, base_url=URL, api_key=KEY, **options)
        self.messages = []

    def ask(self, content, stream):
        from langchain_core.messages import HumanMessage

        if not isinstance(content, str):
            text, url = content
            content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]
        self.messages.append(HumanMessage(content))
        if stream:
            answer = None
            for chunk in self.model.stream(self.messages):
                answer = chunk if answer is None else answer + chunk
        else:
            answer = self.model.invoke(self.messages)
        self.messages.append(answer)
        return answer.text

    def structured(self, text):
        return str(self.model.with_structured_output(City, method="json_schema").invoke(text))


class Llm:
    """A conversation of `llm`, with the model of `extra-openai-models.yaml` and the key that `llm keys set` stores."""

    def __init__(self, responses):
        import llm

        folder = pathlib.Path(os.environ["LLM_USER_PATH"])
        model = {"model_id": "gateway", "model_name": MODEL, "api_base": URL, "api_key_name": "gateway"}
        model |= {"vision": True, "supports_schema": True, "responses": responses}
        # JSON is YAML.
        (folder / "extra-openai-models.yaml").write_text(json.dumps([model]))
        (folder / "keys.json").write_text(json.dumps({"gateway": KEY}))
        self.conversation = llm.get_model("gateway").conversation()

    def ask(self, content, stream, **options):
        import llm

        text, attachments = content, []
        if not isinstance(content, str):
            text, url = content
            attachments = [llm.Attachment(type="image/png", content=picture_bytes(url))]
        return self.conversation.prompt(text, attachments=attachments, stream=stream, **options).text()

    def structured(self, text):
        return self.ask(text, False, schema=City)


CLIENTS = {
    "pydantic-ai": lambda: PydanticAi("OpenAIChatModel"),
    "pydantic-ai-responses": lambda: PydanticAi("OpenAIResponsesModel"),
    "langchain": LangChain,
    "langchain-responses": lambda: LangChain(use_responses_api=True),
    "llm": lambda: Llm(False),
    "llm-responses": lambda: Llm(True),
}

with tempfile.TemporaryDirectory() as folder:
    os.environ["LLM_USER_PATH"] = folder
    print(json.dumps(chat_scenarios.play(CLIENTS, URL, KEY, SCENARIO, PROMPT)))
