"""LangChain's ChatOpenAI, unmodified, against a running gateway. Asserts, and prints what it did. Environment: as openai_sdk.py."""
import json
import os
import urllib.request

import openai
from langchain_core import exceptions
from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

BASE_URL, KEY, KEY_ID = (os.environ[name] for name in ("REROUTER_BASE_URL", "REROUTER_KEY", "REROUTER_KEY_ID"))
REFUSED_KEYS = json.loads(os.environ["REROUTER_REFUSED_KEYS"])
TALK = [SystemMessage("Be brief."), HumanMessage("Is anybody there?")]


def chat(model, key=KEY, **options):
    return ChatOpenAI(model=model, base_url=BASE_URL, api_key=key, max_retries=0, **options)


@tool
def look_up(city: str) -> str:
    """Looks a city up."""
    return f"{city} is a city."


def mock():
    answer = chat("auto").invoke(TALK)
    assert answer.content == "Is anybody there?" and answer.usage_metadata["total_tokens"] > 0, answer
    assert answer.response_metadata["finish_reason"] == "stop", answer
    chunks = list(chat("demo/echo", stream_usage=True).stream(TALK))
    whole = sum(chunks[1:], start=chunks[0])
    assert isinstance(whole, AIMessageChunk) and whole.content == "Is anybody there?", whole
    assert whole.usage_metadata["total_tokens"] > 0, whole
    answers = chat("auto").batch([TALK, [HumanMessage("And now?")]])
    assert [answer.content for answer in answers] == ["Is anybody there?", "And now?"], answers
    print("mock: an answer, a stream of", len(chunks), "chunks, a batch")


def tools():
    model = chat("demo/echo").bind_tools([look_up])
    turn = [HumanMessage("Paris?"), AIMessageChunk(content="", tool_calls=[{"name": "look_up", "args": {"city": "Paris"}, "id": "call_1"}])]
    answer = model.invoke([*turn, ToolMessage(look_up.invoke({"city": "Paris"}), tool_call_id="call_1"), HumanMessage("So?")])
    assert answer.content == "So?", answer
    print("tools: bound, called, answered")


def recorded():
    """Recorded conversations whose request is what ChatOpenAI itself would write: the texts come out as they were recorded."""
    asked = 0
    lines = (line for file in os.environ["REROUTER_RECORDED"].split(os.pathsep) for line in open(file, encoding="utf-8"))
    for exchange in (exchange for exchange in map(json.loads, lines) if exchange["kind"] == "chat"):
        request = dict(exchange["request"])
        name, messages, stream = request.pop("model"), request.pop("messages"), request.pop("stream", False)
        simple = all(set(message) == {"role", "content"} and isinstance(message["content"], str) for message in messages)
        if stream or request or exchange["status"] != 200 or not simple:
            continue
        # It leaves `stream` out where the recording has it.
        answer = chat(f"rec/{name}", extra_body={"stream": False}).invoke(messages)
        expected = json.loads(exchange["response"])["choices"][0]["message"]["content"]
        assert answer.content == expected, (exchange["id"], answer)
        asked += 1
    assert asked > 0
    print("recorded:", asked, "conversations")


def errors():
    chat("auto", REFUSED_KEYS["hasty"]).invoke(TALK)
    long = [HumanMessage("word " * 300)]
    for model, key, talk, kind, own in (
        ("no-such-model", KEY, TALK, openai.NotFoundError, exceptions.ModelNotFoundError),
        ("auto", "rtr_wrong", TALK, openai.AuthenticationError, exceptions.ModelAuthenticationError),
        ("auto", REFUSED_KEYS["forbidden"], TALK, openai.PermissionDeniedError, exceptions.ModelPermissionDeniedError),
        ("auto", REFUSED_KEYS["hasty"], TALK, openai.RateLimitError, exceptions.ModelRateLimitError),
        ("demo/dear", REFUSED_KEYS["broke"], TALK, openai.RateLimitError, exceptions.ModelRateLimitError),
        ("demo/status-429", KEY, TALK, openai.RateLimitError, exceptions.ModelRateLimitError),
        ("demo/short", KEY, long, openai.BadRequestError, exceptions.ContextOverflowError),
        ("strict/filter", KEY, TALK, openai.BadRequestError, exceptions.ModelInvalidRequestError),
    ):
        try:
            chat(model, key).invoke(talk)
        except openai.APIError as error:
            assert isinstance(error, kind) and isinstance(error, own), f"{model}: {error!r} instead of {own.__name__}"
            continue
        raise AssertionError(f"no {kind.__name__}")
    delete = urllib.request.Request(f"{BASE_URL}/router/keys/{KEY_ID}", method="DELETE", headers={"authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(delete) as revoked:
        assert revoked.status == 204
    for call in (lambda: chat("auto").invoke(TALK), lambda: list(chat("auto").stream(TALK))):
        try:
            call()
        except openai.AuthenticationError as error:
            assert error.code == "invalid_api_key", error
            continue
        raise AssertionError("no AuthenticationError")
    print("errors: each of its own kinds, AuthenticationError after revocation")


def main():
    for part in (mock, tools, recorded, errors):
        part()
    print("langchain-openai done")


if __name__ == "__main__":
    main()
