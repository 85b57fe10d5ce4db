"""The official SDKs of OpenAI and Anthropic for Python, unmodified, against a gateway whose providers have other APIs. Asserts.

REROUTER_BASE_URL ends in /v1. The providers `openai`, `anthropic` and `gemini` answer each request with a text and a call of `look`.
"""
import json
import os

import anthropic
import openai

BASE_URL, KEY = os.environ["REROUTER_BASE_URL"], os.environ["REROUTER_KEY"]
TEXT, CITY = "I will look.", {"city": "Paris"}
QUESTION = [{"role": "user", "content": "How is the weather in Paris?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

by_openai = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0)
by_anthropic = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=KEY, max_retries=0)


def chat(model):
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA, "strict": True}}]
    asked = {"model": model, "messages": QUESTION, "tools": tools}
    answer = by_openai.chat.completions.create(**asked)
    message, usage = answer.choices[0].message, answer.usage
    assert (message.content, answer.choices[0].finish_reason) == (TEXT, "tool_calls"), answer
    assert json.loads(message.tool_calls[0].function.arguments) == CITY, answer
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (20, 7, 27), answer
    with by_openai.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        last = stream.get_final_completion()
    call = last.choices[0].message.tool_calls[0].function
    assert (last.choices[0].message.content, json.loads(call.arguments), last.usage.total_tokens) == (TEXT, CITY, 27), last


def responses(model):
    tools = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": True}]
    asked = {"model": model, "input": QUESTION[0]["content"], "tools": tools}
    answer = by_openai.responses.create(**asked)
    with by_openai.responses.stream(**asked) as stream:
        streamed = stream.get_final_response()
    for read in (answer, streamed):
        call = next(item for item in read.output if item.type == "function_call")
        assert (read.output_text, json.loads(call.arguments), read.status) == (TEXT, CITY, "completed"), read
        assert (read.usage.input_tokens, read.usage.output_tokens) == (20, 7), read


def messages(model):
    asked = {"model": model, "max_tokens": 64, "messages": QUESTION, "tools": [{"name": "look", "input_schema": SCHEMA}]}
    answer = by_anthropic.messages.create(**asked)
    with by_anthropic.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    for read in (answer, streamed):
        assert (read.content[0].text, read.content[1].input, read.stop_reason) == (TEXT, CITY, "tool_use"), read
        assert (read.usage.input_tokens, read.usage.output_tokens) == (20, 7), read


def refused(kind, call):
    try:
        call()
    except kind as error:
        assert "logprobs" in str(error), error
        return
    raise AssertionError("a feature that cannot be carried was not refused")


for provider in ("openai/model", "anthropic/model", "gemini/model"):
    for ask in (chat, responses, messages):
        if (ask, provider) == (responses, "openai/model"):
            continue  # Its own API, which this provider has not.
        ask(provider)
        print(ask.__name__, provider)
refused(openai.BadRequestError, lambda: by_openai.chat.completions.create(model="anthropic/model", messages=QUESTION, logprobs=True))
print("all read")
