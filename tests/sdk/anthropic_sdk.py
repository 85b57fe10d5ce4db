"""Anthropic's official SDK for Python, unmodified, against a running gateway. Asserts, and prints what it did.

Environment: as openai_sdk.py. The provider `ant` answers with recorded exchanges of Anthropic's API; `demo` is the mock.
"""
import json
import os

import anthropic
import httpx2 as http
from pydantic import BaseModel

BASE_URL, KEY, KEY_ID = (os.environ[name] for name in ("REROUTER_BASE_URL", "REROUTER_KEY", "REROUTER_KEY_ID"))
ROOT = BASE_URL.removesuffix("/v1")
REFUSED_KEYS = json.loads(os.environ["REROUTER_REFUSED_KEYS"])
MESSAGES = [{"role": "user", "content": "Is anybody there?"}]
LONG = [{"role": "user", "content": "word " * 300}]


class Answer(BaseModel):
    value: int


def raises(kind, call):
    try:
        call()
    except anthropic.APIError as error:
        assert type(error) is kind, f"{error!r} instead of {kind.__name__}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def exchanges():
    for file in os.environ["REROUTER_RECORDED"].split(os.pathsep):
        for line in open(file, encoding="utf-8"):
            exchange = json.loads(line)
            if exchange["kind"] == "messages":
                yield exchange


def mock(client):
    message = client.messages.create(model="demo/echo", max_tokens=64, messages=MESSAGES)
    assert [(block.type, block.text) for block in message.content] == [("text", "Is anybody there?")], message
    assert message.stop_reason == "end_turn" and message.usage.output_tokens > 0, message
    assert message._request_id.startswith("req_"), message._request_id
    with client.messages.stream(model="auto", max_tokens=64, system="Be brief.", messages=MESSAGES) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == "Is anybody there?", final
    assert final.usage.input_tokens > 0 and final.usage.output_tokens > 0 and final.stop_reason == "end_turn", final
    raw = client.messages.with_raw_response.create(model="auto", max_tokens=64, messages=MESSAGES)
    assert raw.headers["x-rerouter-provider"] == "demo" and raw.headers["request-id"] == raw.headers["x-request-id"], raw.headers
    counted = client.messages.count_tokens(model="auto", messages=MESSAGES).input_tokens
    assert counted == message.usage.input_tokens, (counted, message.usage)
    parsed = client.messages.parse(
        model="auto", max_tokens=64, messages=[{"role": "user", "content": '{"value": 42}'}], output_format=Answer
    )
    assert parsed.parsed_output.value == 42, parsed
    print("mock: a message, a stream, a raw response, a count of", counted, "tokens, a structured output")


def blocks(content):
    """What blocks say, in the order in which they come."""
    kept = ("type", "text", "name", "id", "input", "thinking")
    return [{name: block[name] for name in kept if block.get(name) is not None} for block in content]


def recorded(client):
    plain = streamed = tools = 0
    for exchange in exchanges():
        request = dict(exchange["request"])
        model, messages, most = f"ant/{request.pop('model')}", request.pop("messages"), request.pop("max_tokens")
        stream = request.pop("stream", False)
        ask = lambda: client.messages.create(model=model, messages=messages, max_tokens=most, stream=stream, extra_body=request)
        if stream:
            said = [event.to_dict() for event in ask()]
            lines = exchange["response"].replace("\r\n", "\n").split("\n")
            events = [json.loads(line[5:]) for line in lines if line.startswith("data:")]
            assert [event["type"] for event in said] == [event["type"] for event in events if event["type"] != "ping"], exchange["id"]
            delta = lambda event: (event.get("delta") or {}).get("text") or (event.get("delta") or {}).get("partial_json") or ""
            assert [delta(event) for event in said] == [delta(event) for event in events if event["type"] != "ping"], exchange["id"]
            streamed += 1
        else:
            message, answer = ask(), json.loads(exchange["response"])
            assert (message.id, message.stop_reason) == (answer["id"], answer["stop_reason"]), exchange["id"]
            assert blocks(message.to_dict()["content"]) == blocks(answer["content"]), exchange["id"]
            assert message.usage.output_tokens == answer["usage"]["output_tokens"], exchange["id"]
            tools += any(block.type == "tool_use" for block in message.content)
            plain += 1
    assert plain and streamed and tools, (plain, streamed, tools)
    print("recorded:", plain, "messages,", tools, "of them with calls of tools,", streamed, "streams as recorded")


def models(client):
    listed = [model.id for model in client.models.list(limit=3)]
    assert listed[:1] == ["auto"] and "demo/echo" in listed and len(listed) > 6 and len(listed) == len(set(listed)), listed
    page = client.models.list(limit=2, before_id=listed[3])
    assert [model.id for model in page.data] == listed[1:3] and page.has_more, page
    one = client.models.retrieve("demo/echo")
    assert (one.id, one.type, one.display_name) == ("demo/echo", "model", "demo/echo") and one.created_at.year > 2000, one
    raises(anthropic.NotFoundError, lambda: client.models.retrieve("demo/none"))
    print("models:", len(listed), "listed in pages of three, demo/echo retrieved")


def errors(client):
    ask = lambda model, **more: client.messages.create(model=model, max_tokens=64, **{"messages": MESSAGES, **more})
    missing = raises(anthropic.NotFoundError, lambda: ask("no-such-model"))
    assert missing.type == "not_found_error" and missing.request_id.startswith("req_"), missing
    assert missing.body["request_id"] == missing.request_id, missing.body
    bad = raises(anthropic.BadRequestError, lambda: ask("auto", messages={}))
    assert bad.type == "invalid_request_error" and "messages" in bad.api_message, bad
    # A provider of another protocol counts nothing: the gateway estimates, and says so.
    estimated = client.messages.with_raw_response.count_tokens(model="rec/gpt-4o", messages=MESSAGES)
    assert estimated.headers["x-rerouter-estimated"] == "input_tokens", estimated.headers
    assert 0 < estimated.parse().input_tokens < 100 and estimated.parse().estimated, estimated.text
    limited = raises(anthropic.RateLimitError, lambda: ask("demo/status-429"))
    assert limited.type == "rate_limit_error" and limited.response.headers["retry-after"] == "1", limited
    raises(anthropic.NotFoundError, lambda: client.messages.batches.list())
    wrong = anthropic.Anthropic(base_url=ROOT, api_key="rtr_0000000000000000000000000000000000", max_retries=0)
    assert raises(anthropic.AuthenticationError, lambda: wrong.models.list()).status_code == 401
    refused = raises(anthropic.AuthenticationError, lambda: wrong.messages.create(model="auto", max_tokens=9, messages=MESSAGES))
    assert refused.type == "authentication_error" and "invalid x-api-key" in refused.api_message, refused
    send = lambda key, model: anthropic.Anthropic(base_url=ROOT, api_key=REFUSED_KEYS[key], max_retries=0).messages.create(
        model=model, max_tokens=64, messages=MESSAGES
    )
    assert raises(anthropic.PermissionDeniedError, lambda: send("forbidden", "auto")).type == "permission_error"
    send("hasty", "auto")
    assert raises(anthropic.RateLimitError, lambda: send("hasty", "auto")).type == "rate_limit_error"
    assert raises(anthropic.RateLimitError, lambda: send("broke", "demo/dear")).type == "rate_limit_error"
    long = raises(anthropic.BadRequestError, lambda: ask("demo/short", messages=LONG))
    assert long.type == "invalid_request_error" and "prompt is too long: " in long.api_message, long
    filtered = raises(anthropic.BadRequestError, lambda: ask("ant-strict/filter"))
    assert filtered.api_message == "Output blocked by content filtering policy", filtered
    # Its beta features are asked for by a query.
    beta = client.beta.messages.create(model="auto", max_tokens=64, messages=MESSAGES, betas=["interleaved-thinking-2025-05-14"])
    assert beta.content[0].text == "Is anybody there?", beta
    print("errors: NotFoundError, BadRequestError, RateLimitError, AuthenticationError, PermissionDeniedError")


def agents(client):
    # The agent says how long an answer may be.
    message = client.messages.create(model="agent/brief", max_tokens=anthropic.omit, messages=MESSAGES, timeout=30)
    assert message.content[0].text == "Is anybody there?", message
    counted = [client.messages.count_tokens(model=model, messages=MESSAGES).input_tokens for model in ("auto", "agent/brief")]
    assert counted[0] < counted[1] == message.usage.input_tokens, (counted, message.usage)
    raises(anthropic.NotFoundError, lambda: client.messages.create(model="agent/none", max_tokens=9, messages=MESSAGES))
    assert client.models.retrieve("agent/brief").display_name == "agent/brief"
    print("agents: a message and a count of", counted[1], "tokens instead of", counted[0])


def revocation(client):
    # As its versions before 2.0 show the key.
    older = anthropic.Anthropic(base_url=ROOT, api_key=None, default_headers={"X-Api-Key": KEY, "Authorization": anthropic.Omit()}, max_retries=0)
    older.messages.create(model="auto", max_tokens=64, messages=MESSAGES)
    revoked = http.delete(f"{BASE_URL}/router/keys/{KEY_ID}", headers={"authorization": f"Bearer {KEY}"})
    assert revoked.status_code == 204, revoked.text
    for each in (client, older):
        raises(anthropic.AuthenticationError, lambda: each.messages.create(model="auto", max_tokens=64, messages=MESSAGES))
        raises(anthropic.AuthenticationError, lambda: each.messages.count_tokens(model="auto", messages=MESSAGES))
    print("revocation: AuthenticationError on the connection that was open")


def main():
    with anthropic.Anthropic(base_url=ROOT, api_key=KEY, max_retries=0) as client:
        for part in (mock, recorded, models, errors, agents, revocation):
            part(client)
    print("anthropic", anthropic.__version__, "done")


if __name__ == "__main__":
    main()
