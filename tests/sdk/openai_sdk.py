"""The official OpenAI SDK for Python, unmodified, against a running gateway. Asserts, and prints what it did.

REROUTER_BASE_URL ends in /v1; REROUTER_KEY is revoked at the end; REROUTER_KEY_ID is its id; REROUTER_RECORDED are the files of
recorded exchanges that the provider `rec` answers with. The provider `demo` is the mock; `strict` refuses everything by its filter.
REROUTER_REFUSED_KEYS are keys by the reason for which they are refused.
"""
import json
import os

import httpx2 as http
import openai
from pydantic import BaseModel

BASE_URL, KEY, KEY_ID = (os.environ[name] for name in ("REROUTER_BASE_URL", "REROUTER_KEY", "REROUTER_KEY_ID"))
REFUSED_KEYS = json.loads(os.environ["REROUTER_REFUSED_KEYS"])
MESSAGES = [{"role": "user", "content": "Is anybody there?"}]
LONG = [{"role": "user", "content": "word " * 300}]


class Answer(BaseModel):
    value: int


def exchanges(kind):
    for file in os.environ["REROUTER_RECORDED"].split(os.pathsep):
        for line in open(file, encoding="utf-8"):
            exchange = json.loads(line)
            if exchange["kind"] == kind:
                yield exchange


def said(content):
    """The text of a content; some providers write parts, which the SDK passes on as they are."""
    return content if isinstance(content, str) else json.dumps(content) if content else ""


def recorded_text(exchange):
    """The text of a recorded answer."""
    if not exchange["stream"]:
        return said(json.loads(exchange["response"])["choices"][0]["message"].get("content"))
    text = ""
    for line in exchange["response"].replace("\r\n", "\n").split("\n"):
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            for choice in json.loads(line[5:]).get("choices") or []:
                text += said((choice.get("delta") or {}).get("content"))
    return text


def raises(kind, call):
    try:
        call()
    except openai.APIError as error:
        assert type(error) is kind, f"{error!r} instead of {kind.__name__}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def mock(client):
    completion = client.chat.completions.create(model="demo/echo", messages=MESSAGES)
    assert completion.choices[0].message.content == "Is anybody there?", completion
    assert completion.choices[0].finish_reason == "stop" and completion.usage.total_tokens > 0, completion
    chunks = list(client.chat.completions.create(model="auto", messages=MESSAGES, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Is anybody there?" and chunks[-1].usage.total_tokens > 0, chunks
    raw = client.chat.completions.with_raw_response.create(model="auto", messages=MESSAGES)
    assert raw.headers["x-rerouter-provider"] == "demo" and raw.request_id.startswith("req_"), raw.headers
    as_json = [{"role": "user", "content": '{"value": 42}'}]
    parsed = client.chat.completions.parse(model="auto", messages=as_json, response_format=Answer)
    assert parsed.choices[0].message.parsed.value == 42, parsed
    print("mock: a completion, a stream of", len(chunks), "chunks, a raw response, a structured output")


def mock_responses(client):
    response = client.responses.create(model="auto", input="Is anybody there?", instructions="Be brief.")
    assert (response.output_text, response.status) == ("Is anybody there?", "completed") and response.usage.total_tokens > 0, response
    with client.responses.stream(model="auto", input=MESSAGES) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == "Is anybody there?" and final.usage.output_tokens > 0, final
    parsed = client.responses.parse(model="auto", input='{"value": 42}', text_format=Answer)
    assert parsed.output_parsed.value == 42, parsed
    vectors = client.embeddings.create(model="auto", input=["one", "two", "one"], dimensions=8)
    one, two, again = (entry.embedding for entry in vectors.data)
    assert len(one) == 8 and one == again != two and vectors.usage.prompt_tokens > 0, vectors
    plain = client.embeddings.create(model="auto", input="one", dimensions=8, encoding_format="float").data[0].embedding
    assert all(abs(a - b) < 1e-6 for a, b in zip(plain, one)), (plain, one)
    print("mock: a response, its stream, a structured output, embeddings in base64 and as numbers")


def recorded(client):
    plain = streamed = refused = tools = 0
    for exchange in exchanges("chat"):
        request = dict(exchange["request"])
        model, messages, stream = f"rec/{request.pop('model')}", request.pop("messages"), request.pop("stream", False)
        ask = lambda: client.chat.completions.create(model=model, messages=messages, stream=stream, extra_body=request)
        if exchange["status"] == 400:
            error = raises(openai.BadRequestError, ask)
            assert error.status_code == 400 and error.body, exchange["id"]
            refused += 1
        elif stream:
            text, broken = "", False
            try:
                for chunk in ask():
                    text += said(chunk.choices[0].delta.content) if chunk.choices else ""
            except openai.APIError:
                broken = True
            assert broken == ('"error":{' in exchange["response"]), exchange["id"]
            assert broken or text == recorded_text(exchange), (exchange["id"], text)
            streamed += 1
        else:
            completion = ask()
            assert completion.id == json.loads(exchange["response"])["id"], exchange["id"]
            assert said(completion.choices[0].message.content) == recorded_text(exchange), exchange["id"]
            calls = json.loads(exchange["response"])["choices"][0]["message"].get("tool_calls") or []
            made = [(call.id, call.function.name, call.function.arguments) for call in completion.choices[0].message.tool_calls or []]
            assert made == [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls], exchange["id"]
            tools += bool(calls)
            plain += 1
    assert plain and streamed and refused and tools, (plain, streamed, refused, tools)
    print("recorded:", plain, "completions,", tools, "of them with calls of tools,", streamed, "streams,", refused, "refusals as recorded")


def recorded_responses(client):
    plain = streamed = tools = vectors = 0
    for exchange in exchanges("responses"):
        request = dict(exchange["request"])
        model, stream = f"rec/{request.pop('model')}", exchange["stream"]
        # Whether it stood in the request that was recorded.
        stream_as_sent = request.pop("stream", openai.omit)
        ask = lambda: client.responses.create(model=model, stream=stream_as_sent, extra_body=request)
        if stream:
            events = [json.loads(line[5:]) for line in exchange["response"].split("\n") if line.startswith("data:")]
            assert [event.type for event in ask()] == [event["type"] for event in events], exchange["id"]
            streamed += 1
        else:
            response, answer = ask(), json.loads(exchange["response"])
            assert (response.id, response.status) == (answer["id"], answer["status"]), exchange["id"]
            assert [item.type for item in response.output] == [item["type"] for item in answer["output"]], exchange["id"]
            called = [item.arguments for item in response.output if item.type == "function_call"]
            assert called == [item["arguments"] for item in answer["output"] if item["type"] == "function_call"], exchange["id"]
            tools += bool(called)
            plain += 1
    for exchange in exchanges("embeddings"):
        request = dict(exchange["request"])
        ask = lambda: client.embeddings.create(**{**request, "model": f"rec/{request['model']}"})
        if exchange["status"] == 200:
            assert len(ask().data) == len(json.loads(exchange["response"])["data"]), exchange["id"]
        else:
            raises(openai.NotFoundError, ask)
        vectors += 1
    assert plain and streamed and tools and vectors, (plain, streamed, tools, vectors)
    print("recorded:", plain, "responses,", tools, "of them with calls of tools,", streamed, "streams,", vectors, "embeddings as recorded")


def models(client):
    listed = [model.id for model in client.models.list()]
    assert listed[:1] == ["auto"] and "demo/echo" in listed, listed
    one = client.models.retrieve("demo/echo")
    assert (one.id, one.object, one.owned_by) == ("demo/echo", "model", "demo") and one.created > 1_600_000_000, one
    deep = next(name for name in listed if name.count("/") > 1)
    assert client.models.retrieve(deep).id == deep
    print("models:", len(listed), "listed, demo/echo and", deep, "retrieved")


def errors(client):
    missing = raises(openai.NotFoundError, lambda: client.chat.completions.create(model="no-such-model", messages=MESSAGES))
    assert (missing.code, missing.param, missing.type) == ("model_not_found", "model", "invalid_request_error"), missing
    assert missing.request_id.startswith("req_"), missing
    assert raises(openai.NotFoundError, lambda: client.models.retrieve("demo/none")).code == "model_not_found"
    unsuited = raises(openai.BadRequestError, lambda: client.embeddings.create(model="ant/claude-sonnet-4-5", input="a"))
    assert unsuited.code == "unsupported_feature" and "endpoint" in unsuited.message, unsuited
    bad = raises(openai.BadRequestError, lambda: client.chat.completions.create(model="auto", messages={}))
    assert (bad.param, bad.type) == ("messages", "invalid_request_error"), bad
    limited = raises(openai.RateLimitError, lambda: client.chat.completions.create(model="demo/status-429", messages=MESSAGES))
    assert limited.status_code == 429, limited
    raises(openai.NotFoundError, lambda: client.images.generate(model="auto", prompt="a cat"))
    wrong = openai.OpenAI(base_url=BASE_URL, api_key="rtr_0000000000000000000000000000000000")
    incorrect = raises(openai.AuthenticationError, lambda: wrong.models.list())
    assert incorrect.code == "invalid_api_key" and "Incorrect API key provided: " in incorrect.message, incorrect
    ask = lambda key, model: openai.OpenAI(base_url=BASE_URL, api_key=REFUSED_KEYS[key], max_retries=0).chat.completions.create(
        model=model, messages=MESSAGES
    )
    forbidden = raises(openai.PermissionDeniedError, lambda: ask("forbidden", "auto"))
    assert (forbidden.code, forbidden.type) == ("insufficient_scope", "permission_error"), forbidden
    ask("hasty", "auto")
    assert raises(openai.RateLimitError, lambda: ask("hasty", "auto")).code == "rate_limit_exceeded"
    assert raises(openai.RateLimitError, lambda: ask("broke", "demo/dear")).code == "insufficient_quota"
    long = raises(openai.BadRequestError, lambda: client.chat.completions.create(model="demo/short", messages=LONG))
    assert long.code == "context_length_exceeded" and "maximum context length is 100 tokens" in long.message, long
    filtered = raises(openai.BadRequestError, lambda: client.chat.completions.create(model="strict/filter", messages=MESSAGES))
    assert filtered.code == "invalid_prompt" and "usage policy" in filtered.message, filtered
    print("errors: NotFoundError, BadRequestError, RateLimitError, AuthenticationError, PermissionDeniedError")


def agents(client):
    assert "agent/brief" in [model.id for model in client.models.list()]
    completion = client.chat.completions.create(model="agent/brief", messages=MESSAGES)
    assert completion.choices[0].message.content == "Is anybody there?", completion
    direct = client.chat.completions.create(model="auto", messages=MESSAGES)
    assert completion.usage.prompt_tokens > direct.usage.prompt_tokens, (completion.usage, direct.usage)
    with client.chat.completions.stream(model="agent/brief", messages=MESSAGES) as stream:
        assert stream.get_final_completion().choices[0].message.content == "Is anybody there?"
    assert client.responses.create(model="agent/brief", input="Is anybody there?").output_text == "Is anybody there?"
    assert raises(openai.NotFoundError, lambda: client.chat.completions.create(model="agent/none", messages=MESSAGES)).code == "model_not_found"
    assert raises(openai.BadRequestError, lambda: client.embeddings.create(model="agent/brief", input="x")).param == "model"
    print("agents: a completion, a stream, a response")


def revocation(client):
    client.chat.completions.create(model="auto", messages=MESSAGES)
    revoked = http.delete(f"{BASE_URL}/router/keys/{KEY_ID}", headers={"authorization": f"Bearer {KEY}"})
    assert revoked.status_code == 204, revoked.text
    for call in (
        lambda: client.chat.completions.create(model="auto", messages=MESSAGES),
        lambda: client.chat.completions.create(model="auto", messages=MESSAGES, stream=True),
        lambda: client.models.list(),
        lambda: client.embeddings.create(model="auto", input="x"),
        lambda: client.responses.create(model="auto", input="x"),
    ):
        error = raises(openai.AuthenticationError, call)
        assert (error.status_code, error.code, error.type) == (401, "invalid_api_key", "invalid_request_error"), error
    print("revocation: AuthenticationError on the connection that was open")


def main():
    with openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0) as client:
        for part in (mock, mock_responses, recorded, recorded_responses, models, errors, agents, revocation):
            part(client)
    print("openai", openai.__version__, "done")


if __name__ == "__main__":
    main()
