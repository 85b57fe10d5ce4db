"""Translated requests against the request types of the providers' own SDKs. A member that a type does not have is an error.

Environment: TRANSLATED, a file with an object a line: `id`, `target` (the dialect) and `body`.
"""
import collections
import collections.abc
import json
import os
import sys
import typing

import anthropic
import anthropic.types as messages
import anthropic.types.beta as beta_messages
import openai
import openai.types.chat.completion_create_params as chat
import openai.types.responses.response_create_params as responses
import pydantic
import typing_extensions
from google.genai import types as gemini


def prepare(package):
    """Makes the package's typed dictionaries strict, and its protocols ones that pydantic knows."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(f"{package}.types"):
            continue
        if hasattr(module, "SequenceNotStr"):
            module.SequenceNotStr = typing.List
        for kind in vars(module).values():
            if typing_extensions.is_typeddict(kind):
                kind.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)


prepare("openai")
prepare("anthropic")


class GenerateContent(pydantic.BaseModel):
    """The body of `generateContent`: google-genai has types of its members only."""

    model_config = pydantic.ConfigDict(extra="forbid")
    contents: list[gemini.Content]
    systemInstruction: gemini.Content | None = None
    tools: list[gemini.Tool] | None = None
    toolConfig: gemini.ToolConfig | None = None
    generationConfig: gemini.GenerationConfig | None = None


TYPES = {
    ("chat", False): chat.CompletionCreateParamsNonStreaming,
    ("chat", True): chat.CompletionCreateParamsStreaming,
    ("messages", False): messages.message_create_params.MessageCreateParamsNonStreaming,
    ("messages", True): messages.message_create_params.MessageCreateParamsStreaming,
    # MCP servers are a beta.
    ("messages-beta", False): beta_messages.message_create_params.MessageCreateParamsNonStreaming,
    ("messages-beta", True): beta_messages.message_create_params.MessageCreateParamsStreaming,
    ("responses", False): responses.ResponseCreateParamsNonStreaming,
    ("responses", True): responses.ResponseCreateParamsStreaming,
    ("gemini", False): GenerateContent,
}
ADAPTERS = {key: pydantic.TypeAdapter(kind) for key, kind in TYPES.items()}


def exhaust(value):
    """Goes through the iterators, which pydantic checks only then."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, (str, bytes, pydantic.BaseModel)) or not isinstance(value, collections.abc.Iterable):
        return
    for element in value:
        exhaust(element)


# Older models take these, and the API of the dialect still has them; the newest SDK names them no longer.
SAMPLING = ("temperature", "top_p", "top_k")


def check(target, body):
    if target == "messages":
        body = {name: value for name, value in body.items() if name not in SAMPLING}
    if "mcp_servers" in body:
        target = "messages-beta"
    exhaust(ADAPTERS[target, body.get("stream", False)].validate_python(body))


# The types are strict: none of these passes.
for target, wrong in [
    ("chat", {"model": "m", "messages": [{"role": "user", "content": [{"type": "text"}]}]}),
    ("chat", {"model": "m", "messages": [], "top_k": 5}),
    ("messages", {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "text", "texts": "x"}]}]}),
    ("responses", {"model": "m", "input": [{"type": "function_call", "name": "f"}]}),
    ("gemini", {"contents": [{"role": "user", "parts": [{"txt": "x"}]}]}),
]:
    try:
        check(target, wrong)
    except pydantic.ValidationError:
        continue
    raise AssertionError(f"{target}: {wrong} passes")

count = collections.Counter()
for line in open(os.environ["TRANSLATED"], encoding="utf-8"):
    request = json.loads(line)
    try:
        check(request["target"], request["body"])
    except pydantic.ValidationError as error:
        raise AssertionError(f"{request['id']} {request['target']}: {json.dumps(request['body'])[:4000]}\n{str(error)[:4000]}")
    count[request["target"]] += 1
print(dict(count))
print("done")
