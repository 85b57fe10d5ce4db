"""Clients for Python, unmodified, against a gateway whose providers have other APIs: OpenAI's and Anthropic's SDKs, LangChain and LiteLLM. Asserts.

REROUTER_BASE_URL ends in /v1. The providers `openai`, `anthropic`, `gemini` and `responder` (of responses alone) answer a question with a text
and a call of `look`, and its result with another text. Their models `busy` and `bad` answer with errors. All of it is in the words of each provider's API. Each client sends the
headers PASSED, which a provider gets with what is passed on, and not with what is translated for it.
"""
import json
import os

# Else LiteLLM fetches its list of prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import anthropic
import litellm
import openai
from google import genai
from google.genai import errors as genai_errors
from langchain_anthropic import ChatAnthropic
from langchain_core import exceptions
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

BASE_URL, KEY = os.environ["REROUTER_BASE_URL"], os.environ["REROUTER_KEY"]
ROOT = BASE_URL.removesuffix("/v1")
TEXT, CITY, RAIN, ADVICE = "I will look.", {"city": "Paris"}, "It rains in Paris.", "Take an umbrella."
QUESTION = [{"role": "user", "content": "How is the weather in Paris?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "look", "description": "Looks at a city.", "parameters": SCHEMA}}
PASSED = {"anthropic-beta": "passed-1", "openai-beta": "passed=1"}
litellm.suppress_debug_info = True

by_openai = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, default_headers=PASSED)
by_anthropic = anthropic.Anthropic(base_url=ROOT, api_key=KEY, max_retries=0, default_headers=PASSED)


def raises(kind, call):
    try:
        call()
    except Exception as error:
        assert type(error) is kind or kind.__module__.startswith("langchain") and isinstance(error, kind), f"{error!r} instead of {kind.__name__}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def refuses(kinds, ask):
    """What the provider refuses is the client's own kind of error, with the provider's words."""
    for model, kind, words in zip(("busy", "bad"), kinds, ("Slow down.", "Bad value.")):
        assert words in str(raises(kind, lambda: ask(model))), model


def openai_chat(provider):
    asked = {"model": f"{provider}/model", "messages": QUESTION, "tools": [CHAT_TOOL]}
    answer = by_openai.chat.completions.create(**asked)
    with by_openai.chat.completions.stream(**{**asked, "tools": [strict(CHAT_TOOL)]}, stream_options={"include_usage": True}) as stream:
        streamed = stream.get_final_completion()
    for read in (answer, streamed):
        message, usage = read.choices[0].message, read.usage
        assert (message.content, read.choices[0].finish_reason) == (TEXT, "tool_calls"), read
        assert [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls] == [("look", CITY)], read
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (20, 7, 27), read
    result = {"role": "tool", "tool_call_id": answer.choices[0].message.tool_calls[0].id, "content": RAIN}
    last = by_openai.chat.completions.create(**{**asked, "messages": [*QUESTION, answer.choices[0].message, result]})
    assert (last.choices[0].message.content, last.choices[0].finish_reason) == (ADVICE, "stop"), last
    refuses((openai.RateLimitError, openai.BadRequestError), lambda model: by_openai.chat.completions.create(model=f"{provider}/{model}", messages=QUESTION))


def strict(tool):
    return {**tool, "function": {**tool["function"], "strict": True}}


def openai_responses(provider):
    tools = [{"type": "function", "name": "look", "description": "Looks at a city.", "parameters": SCHEMA, "strict": True}]
    asked = {"model": f"{provider}/model", "input": QUESTION, "tools": tools}
    answer = by_openai.responses.create(**asked)
    with by_openai.responses.stream(**asked) as stream:
        streamed = stream.get_final_response()
    for read in (answer, streamed):
        calls = [(item.name, json.loads(item.arguments)) for item in read.output if item.type == "function_call"]
        assert (read.output_text, calls, read.status) == (TEXT, [("look", CITY)], "completed"), read
        assert (read.usage.input_tokens, read.usage.output_tokens) == (20, 7), read
    result = {"type": "function_call_output", "call_id": answer.output[-1].call_id, "output": RAIN}
    last = by_openai.responses.create(**{**asked, "input": [*QUESTION, *answer.output, result]})
    assert (last.output_text, last.status) == (ADVICE, "completed"), last
    refuses((openai.RateLimitError, openai.BadRequestError), lambda model: by_openai.responses.create(model=f"{provider}/{model}", input=QUESTION))


def anthropic_messages(provider):
    tools = [{"name": "look", "description": "Looks at a city.", "input_schema": SCHEMA}]
    asked = {"model": f"{provider}/model", "max_tokens": 64, "messages": QUESTION, "tools": tools}
    answer = by_anthropic.messages.create(**asked)
    with by_anthropic.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    for read in (answer, streamed):
        assert (read.content[0].text, read.content[1].name, read.content[1].input, read.stop_reason) == (TEXT, "look", CITY, "tool_use"), read
        assert (read.usage.input_tokens, read.usage.output_tokens) == (20, 7), read
    result = {"type": "tool_result", "tool_use_id": answer.content[1].id, "content": RAIN}
    messages = [*QUESTION, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    last = by_anthropic.messages.create(**{**asked, "messages": messages})
    assert ([block.text for block in last.content], last.stop_reason) == ([ADVICE], "end_turn"), last
    refuses(
        (anthropic.RateLimitError, anthropic.BadRequestError),
        lambda model: by_anthropic.messages.create(model=f"{provider}/{model}", max_tokens=64, messages=QUESTION),
    )


def langchain(make, kinds):
    def ask(provider):
        model = make(f"{provider}/model").bind_tools([CHAT_TOOL])
        talk = [HumanMessage(QUESTION[0]["content"])]
        answer, chunks = model.invoke(talk), list(model.stream(talk))
        for read in (answer, sum(chunks[1:], start=chunks[0])):
            assert str(read.text) == TEXT and [(call["name"], call["args"]) for call in read.tool_calls] == [("look", CITY)], read
            assert (read.usage_metadata["input_tokens"], read.usage_metadata["output_tokens"]) == (20, 7), read
        last = model.invoke([*talk, answer, ToolMessage(RAIN, tool_call_id=answer.tool_calls[0]["id"])])
        assert str(last.text) == ADVICE and not last.tool_calls, last
        refuses(kinds, lambda model: make(f"{provider}/{model}").invoke(talk))

    return ask


def litellm_of(api, base):
    def ask(provider):
        def complete(model, **more):
            options = {"api_base": base, "api_key": KEY, "max_tokens": 64, "num_retries": 0, "max_retries": 0, "messages": QUESTION, "extra_headers": PASSED}
            return litellm.completion(model=f"{api}/{provider}/{model}", **{**options, **more})

        asked = {"tools": [CHAT_TOOL], "model": "model"}
        answer, chunks = complete(**asked), list(complete(**asked, stream=True, stream_options={"include_usage": True}))
        for read in (answer, litellm.stream_chunk_builder(chunks, messages=QUESTION)):
            message = read.choices[0].message
            assert (message.content, read.choices[0].finish_reason) == (TEXT, "tool_calls"), read
            assert [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls] == [("look", CITY)], read
            assert (read.usage.prompt_tokens, read.usage.completion_tokens) == (20, 7), read
        turn = answer.choices[0].message
        result = {"role": "tool", "tool_call_id": turn.tool_calls[0].id, "content": RAIN}
        last = complete(**asked, messages=[*QUESTION, turn.model_dump(), result])
        assert (last.choices[0].message.content, last.choices[0].finish_reason) == (ADVICE, "stop"), last
        refuses((litellm.RateLimitError, litellm.BadRequestError), complete)

    return ask


ANSWERED = {"base_url": BASE_URL, "api_key": KEY, "max_retries": 0, "default_headers": PASSED}
LANGCHAIN_KINDS = (exceptions.ModelRateLimitError, exceptions.ModelInvalidRequestError)
CLIENTS = {
    "openai, chat": openai_chat,
    "openai, responses": openai_responses,
    "anthropic": anthropic_messages,
    "langchain-openai, chat": langchain(lambda model: ChatOpenAI(model=model, stream_usage=True, **ANSWERED), LANGCHAIN_KINDS),
    "langchain-openai, responses": langchain(lambda model: ChatOpenAI(model=model, use_responses_api=True, **ANSWERED), LANGCHAIN_KINDS),
    "langchain-anthropic": langchain(lambda model: ChatAnthropic(model=model, max_tokens=64, **{**ANSWERED, "base_url": ROOT}), LANGCHAIN_KINDS),
    "litellm, openai": litellm_of("openai", BASE_URL),
    "litellm, anthropic": litellm_of("anthropic", ROOT),
}

for provider in ("openai", "anthropic", "gemini", "responder"):
    for name, ask in CLIENTS.items():
        ask(provider)
        print(name, "at", provider)
unsuited = raises(openai.BadRequestError, lambda: by_openai.chat.completions.create(model="anthropic/model", messages=QUESTION, logprobs=True))
assert "logprobs" in str(unsuited), unsuited
# Google's own API is one of providers: no client is answered in it.
by_google = genai.Client(api_key=KEY, http_options={"base_url": ROOT, "headers": {"authorization": f"Bearer {KEY}"}})
unserved = raises(genai_errors.ClientError, lambda: by_google.models.generate_content(model="gemini/model", contents="Is anybody there?"))
assert unserved.code in (404, 405), unserved
print("all read")
