"""The official SDKs of OpenAI and Anthropic for Python over recorded answers, as they are and translated. Asserts, and prints what it did.

Environment: REROUTER_BASE_URL, whose `/ID/DIALECT/…` answers with the recorded exchange ID in that dialect; REROUTER_RECORDED, the recordings.
Each SDK reads the translation as the provider's own SDK reads the recording: text, thoughts, tool calls, stop reason and usage.
"""
import collections
import json
import os

import anthropic
import openai
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

BASE_URL = os.environ["REROUTER_BASE_URL"]
MESSAGES = [{"role": "user", "content": "Is anybody there?"}]
DIALECTS = ("chat", "messages", "responses")
Said = collections.namedtuple("Said", "text thoughts calls stop usage")
# One of each for all exchanges: a new one reads the authorities of TLS, which takes longer than a request.
BY_OPENAI = openai.OpenAI(base_url=BASE_URL, api_key="sk-none", max_retries=0)
BY_ANTHROPIC = anthropic.Anthropic(base_url=BASE_URL, api_key="sk-none", max_retries=0)


def exchanges():
    for file in os.environ["REROUTER_RECORDED"].split(os.pathsep):
        for line in open(file, encoding="utf-8"):
            exchange = json.loads(line)
            if exchange["kind"] in DIALECTS:
                yield exchange


def openai_client(exchange, dialect):
    return BY_OPENAI.with_options(base_url=f"{BASE_URL}/{exchange['id']}/{dialect}")


def anthropic_client(exchange):
    return BY_ANTHROPIC.with_options(base_url=f"{BASE_URL}/{exchange['id']}/messages")


def parsed(arguments):
    return json.loads(arguments or "{}")


def said_by_completion(completion):
    choice = completion.choices[0]
    message, extra = choice.message, choice.message.model_extra or {}
    content = message.content
    thoughts = extra.get("reasoning_content") or extra.get("reasoning") or ""
    if isinstance(content, list):
        thoughts = "".join(thought["text"] for piece in content for thought in piece.get("thinking", []))
        content = "".join(piece.get("text", "") for piece in content)
    calls = [(call.function.name, parsed(call.function.arguments), call.id) for call in message.tool_calls or []]
    stop = {"length": "length", "content_filter": "refusal", "tool_calls": "calls", None: "none"}.get(choice.finish_reason, "end")
    if stop == "end" and (calls or message.refusal):
        stop = "calls" if calls else "refusal"
    usage = completion.usage
    prompt = usage and usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens
    known = usage and (usage.model_extra or {})
    cached = prompt or usage and (known.get("prompt_cache_hit_tokens") or known.get("num_cached_tokens") or known.get("cached_tokens")) or 0
    reasoning = usage and usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens or 0
    counts = usage and (usage.prompt_tokens, cached, usage.completion_tokens, reasoning)
    return Said((content or "") + (message.refusal or ""), thoughts, calls, stop, counts)


def said_by_message(message):
    of = lambda kind: [block for block in message.content if block.type == kind]
    calls = [(block.name, block.input, block.id) for block in of("tool_use")]
    stops = {"max_tokens": "length", "tool_use": "calls", "refusal": "refusal", None: "none"}
    usage = message.usage
    cached, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    details = usage.output_tokens_details
    counts = (usage.input_tokens + cached + written, cached, usage.output_tokens, details.thinking_tokens if details else 0)
    text, thoughts = "".join(block.text for block in of("text")), "".join(block.thinking for block in of("thinking"))
    return Said(text, thoughts, calls, stops.get(message.stop_reason, "end"), counts)


def said_by_response(response):
    text, refused, thoughts, calls = "", False, "", []
    for item in response.output:
        if item.type == "message":
            refused = refused or any(content.type == "refusal" for content in item.content)
            text += "".join(content.refusal if content.type == "refusal" else content.text for content in item.content)
        elif item.type == "reasoning":
            thoughts += "\n\n".join(piece.text for piece in [*(item.summary or []), *(item.content or [])])
        elif item.type == "function_call":
            calls.append((item.name, parsed(item.arguments), item.call_id))
    reason = response.incomplete_details and response.incomplete_details.reason
    if response.status in ("queued", "in_progress") or response.status == "incomplete" and not reason:
        stop = "none"
    elif response.status == "incomplete":
        stop = "refusal" if reason == "content_filter" else "length"
    else:
        stop = "calls" if calls else "refusal" if refused else "end"
    usage = response.usage
    counts = usage and (
        usage.input_tokens,
        usage.input_tokens_details.cached_tokens,
        usage.output_tokens,
        usage.output_tokens_details.reasoning_tokens,
    )
    return Said(text, thoughts, calls, stop, counts)


def answer(exchange, dialect):
    """What the dialect's SDK reads, and the model that the answer must be valid as."""
    if dialect == "chat":
        completion = openai_client(exchange, dialect).chat.completions.create(model="m", messages=MESSAGES)
        return said_by_completion(completion), completion, ChatCompletion
    if dialect == "messages":
        message = anthropic_client(exchange).messages.create(model="m", max_tokens=9, messages=MESSAGES)
        return said_by_message(message), message, Message
    response = openai_client(exchange, dialect).responses.create(model="m", input="Is anybody there?")
    return said_by_response(response), response, Response


def recorded_completion(exchange):
    """The chunks of a recorded stream put together: providers add members that the SDK's own helper refuses."""
    text, thoughts, calls, stop, usage = "", "", {}, None, None
    for chunk in openai_client(exchange, "chat").chat.completions.create(model="m", messages=MESSAGES, stream=True):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            delta, stop = choice.delta, choice.finish_reason or stop
            extra = delta.model_extra or {}
            thoughts += extra.get("reasoning_content") or extra.get("reasoning") or ""
            if isinstance(delta.content, list):
                thoughts += "".join(thought["text"] for piece in delta.content for thought in piece.get("thinking", []))
            else:
                text += delta.content or ""
            for call in delta.tool_calls or []:
                known = calls.setdefault(call.index, {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": ""}})
                known["function"]["arguments"] += call.function.arguments or ""
    message = {"role": "assistant", "content": text, "reasoning_content": thoughts, "tool_calls": [calls[index] for index in sorted(calls)] or None}
    choice = {"index": 0, "finish_reason": stop, "message": message, "logprobs": None}
    completion = {"id": "none", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    return ChatCompletion.model_validate({**completion, "usage": usage and usage.to_dict()})


def stream(exchange, dialect):
    """What the dialect's SDK has put together at the end of its stream. Each event of a translation is valid as the SDK has it."""
    translated, events = dialect != exchange["kind"], []
    if dialect == "chat":
        if not translated:
            return said_by_completion(recorded_completion(exchange))
        client = openai_client(exchange, dialect)
        with client.chat.completions.stream(model="m", messages=MESSAGES) as manager:
            events = [event.chunk for event in manager if event.type == "chunk"]
            said = said_by_completion(manager.get_final_completion())
        thoughts = (chunk.choices[0].delta.model_extra or {} for chunk in events if chunk.choices)
        said = said._replace(thoughts="".join(delta.get("reasoning_content") or "" for delta in thoughts))
        valid = ChatCompletionChunk
        raw = [chunk.to_dict() for chunk in events]
        assert events[0].choices[0].delta.role == "assistant", exchange["id"]
    elif dialect == "messages":
        with anthropic_client(exchange).messages.stream(model="m", max_tokens=9, messages=MESSAGES) as manager:
            said = said_by_message(manager.get_final_message())
        raw = [event.to_dict() for event in anthropic_client(exchange).messages.create(model="m", max_tokens=9, messages=MESSAGES, stream=True)]
        valid = RawMessageStreamEvent
        if translated:
            grammar(exchange, [event["type"] for event in raw], [event.get("index") for event in raw])
    else:
        client = openai_client(exchange, dialect)
        with client.responses.stream(model="m", input="Is anybody there?") as manager:
            said = said_by_response(manager.get_final_response())
        raw = [event.to_dict() for event in client.responses.create(model="m", input="Is anybody there?", stream=True)]
        valid = ResponseStreamEvent
        if translated:
            assert [event["sequence_number"] for event in raw] == list(range(len(raw))), exchange["id"]
            assert [event["type"] for event in raw[:2]] == ["response.created", "response.in_progress"], exchange["id"]
            done = [event["item"] for event in raw if event["type"] == "response.output_item.done"]
            assert done == raw[-1]["response"]["output"], exchange["id"]
    if translated:
        for event in raw:
            TypeAdapter(valid).validate_python(event)
    return said


def broken(exchange, dialect):
    """What the dialect's SDK reads of a stream in which the provider reports an error: text and thoughts up to there, and its words."""
    text, thoughts = "", ""
    try:
        if dialect == "chat":
            for chunk in openai_client(exchange, dialect).chat.completions.create(model="m", messages=MESSAGES, stream=True):
                for choice in chunk.choices:
                    extra = choice.delta.model_extra or {}
                    text += choice.delta.content or ""
                    thoughts += extra.get("reasoning_content") or extra.get("reasoning") or ""
        elif dialect == "messages":
            for event in anthropic_client(exchange).messages.create(model="m", max_tokens=9, messages=MESSAGES, stream=True):
                if event.type == "content_block_delta":
                    text += getattr(event.delta, "text", "")
                    thoughts += getattr(event.delta, "thinking", "")
        else:
            for event in openai_client(exchange, dialect).responses.create(model="m", input="Is anybody there?", stream=True):
                text += event.delta if event.type == "response.output_text.delta" else ""
                thoughts += event.delta if event.type == "response.reasoning_summary_text.delta" else ""
                if event.type == "error":
                    return text, thoughts, event.message
    except openai.APIError as error:
        return text, thoughts, error.message
    except anthropic.APIError as error:
        return text, thoughts, error.body["error"]["message"]
    raise AssertionError(f"{exchange['id']} as {dialect}: no error")


def grammar(exchange, types, indexes):
    """Blocks come one after another, each with its start and its stop."""
    assert types[0] == "message_start" and types[-2:] == ["message_delta", "message_stop"], (exchange["id"], types)
    opened, after = None, 0
    for kind, index in zip(types[1:-2], indexes[1:-2]):
        if kind == "content_block_start":
            assert opened is None and index == after, exchange["id"]
            opened, after = index, after + 1
        else:
            assert opened == index, exchange["id"]
            opened = None if kind == "content_block_stop" else opened
    assert opened is None, exchange["id"]


def same(own, other, what):
    """Calls without an id have one in the translation. A message always has a usage."""
    ids = [(call[2], made[2]) for call, made in zip(own.calls, other.calls)]
    assert all(made for _, made in ids), what
    calls = [(name, arguments, id if mine else "") for (name, arguments, id), (mine, _) in zip(other.calls, ids)]
    usage = own.usage if own.usage is None else other.usage
    assert own == other._replace(calls=calls, usage=usage), f"{what}:\n{own}\n{other}"


def main():
    answers, streams, refused, events_of_errors = collections.Counter(), collections.Counter(), 0, 0
    for exchange in exchanges():
        others = [dialect for dialect in DIALECTS if dialect != exchange["kind"]]
        streamed = exchange["content_type"].startswith("text/event-stream")
        for dialect in others:
            what = f"{exchange['id']} of {exchange['host']} as {dialect}"
            if exchange["status"] != 200:
                try:
                    answer(exchange, dialect)
                    raise AssertionError(what)
                except (openai.BadRequestError, anthropic.BadRequestError) as error:
                    message = json.loads(exchange["response"])["error"]["message"]
                    assert message in str(error), (what, error)
                refused += 1
            elif streamed and '"error":{"code"' in exchange["response"]:
                own, other = broken(exchange, exchange["kind"]), broken(exchange, dialect)
                assert own == other and any(own[:2]) and own[2] in exchange["response"], f"{what}:\n{own}\n{other}"
                events_of_errors += 1
            elif streamed:
                same(stream(exchange, exchange["kind"]), stream(exchange, dialect), what)
                streams[dialect] += 1
            else:
                own, (other, read, valid) = answer(exchange, exchange["kind"])[0], answer(exchange, dialect)
                same(own, other, what)
                # What was only queued has no reason to stop, which a completion must have.
                if other.stop != "none":
                    valid.model_validate(read.to_dict())
                answers[dialect] += 1
    print("answers:", dict(answers), "streams:", dict(streams), "errors:", refused, "errors in streams:", events_of_errors)
    print("done")


main()
