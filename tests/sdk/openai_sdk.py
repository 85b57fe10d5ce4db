"""The official OpenAI SDK for Python, unmodified, against a running gateway. Asserts, and prints what it did.

REROUTER_BASE_URL ends in /v1; REROUTER_KEY is revoked at the end; REROUTER_KEY_ID is its id; REROUTER_RECORDED is the file of
recorded exchanges that the provider `rec` answers with. The provider `demo` is the mock.
"""
import json
import os

import httpx2 as http
import openai

BASE_URL, KEY, KEY_ID = (os.environ[name] for name in ("REROUTER_BASE_URL", "REROUTER_KEY", "REROUTER_KEY_ID"))
MESSAGES = [{"role": "user", "content": "Is anybody there?"}]


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
    print("mock: a completion, a stream of", len(chunks), "chunks, a raw response")


def recorded(client):
    plain = streamed = refused = 0
    for line in open(os.environ["REROUTER_RECORDED"], encoding="utf-8"):
        exchange = json.loads(line)
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
            plain += 1
    assert plain and streamed and refused, (plain, streamed, refused)
    print("recorded:", plain, "completions,", streamed, "streams,", refused, "refusals as recorded")


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
    bad = raises(openai.BadRequestError, lambda: client.chat.completions.create(model="auto", messages={}))
    assert (bad.param, bad.type) == ("messages", "invalid_request_error"), bad
    limited = raises(openai.RateLimitError, lambda: client.chat.completions.create(model="demo/status-429", messages=MESSAGES))
    assert limited.status_code == 429, limited
    raises(openai.NotFoundError, lambda: client.images.generate(model="auto", prompt="a cat"))
    wrong = openai.OpenAI(base_url=BASE_URL, api_key="rtr_0000000000000000000000000000000000")
    assert raises(openai.AuthenticationError, lambda: wrong.models.list()).code == "invalid_api_key"
    print("errors: NotFoundError, BadRequestError, RateLimitError, AuthenticationError")


def revocation(client):
    client.chat.completions.create(model="auto", messages=MESSAGES)
    revoked = http.delete(f"{BASE_URL}/router/keys/{KEY_ID}", headers={"authorization": f"Bearer {KEY}"})
    assert revoked.status_code == 204, revoked.text
    for call in (
        lambda: client.chat.completions.create(model="auto", messages=MESSAGES),
        lambda: client.chat.completions.create(model="auto", messages=MESSAGES, stream=True),
        lambda: client.models.list(),
    ):
        error = raises(openai.AuthenticationError, call)
        assert (error.status_code, error.code, error.type) == (401, "invalid_api_key", "invalid_request_error"), error
    print("revocation: AuthenticationError on the connection that was open")


def main():
    with openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0) as client:
        for part in (mock, recorded, models, errors, revocation):
            part(client)
    print("openai", openai.__version__, "done")


if __name__ == "__main__":
    main()
