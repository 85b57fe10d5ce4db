#!/usr/bin/env python3
"""Trains the dictionary of the archive, archive/captures.zdict in crates/captures/src/, with the
zstd of the system. Heads are made up, in the form of capture/packed_head.rs there; bodies are those
of tests/data, and chats with the English of READMEs.

Usage: dictionary.py DIRECTORY (with README.md files below it, such as cargo's registry)
"""
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
random.seed(1)


def num(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def text(value):
    data = value.encode()
    return num(len(data)) + data


def flag(value):
    return bytes([value])


def real(value):
    return struct.pack(">d", value)


def maybe(form, value):
    return b"\0" if value is None else b"\1" + form(value)


def many(values):
    return num(len(values)) + b"".join(values)


def one(*of):
    return random.choice(of)


def id_of(prefix):
    return prefix + "01k" + "".join(random.choice(DIGITS) for _ in range(23))


def hexes(count):
    return "".join(random.choice("0123456789abcdef") for _ in range(count))


TARGETS = [
    ("openai", "gpt-5"), ("openai", "gpt-5-mini"), ("openai", "gpt-4o-mini"), ("anthropic", "claude-sonnet-4-5"),
    ("anthropic", "claude-opus-5"), ("google", "gemini-2.5-pro"), ("google", "gemini-2.5-flash"), ("mistral", "mistral-large"),
    ("groq", "llama-3.3-70b"), ("deepseek", "deepseek-chat"), ("local", "qwen3-32b"), ("nodes", "llama-3"),
]
CLIENTS = [
    [("user-agent", "OpenAI/Python 2.8.0"), ("x-stainless-arch", "x64"), ("x-stainless-async", "false"),
     ("x-stainless-lang", "python"), ("x-stainless-os", "Linux"), ("x-stainless-package-version", "2.8.0"),
     ("x-stainless-read-timeout", "600"), ("x-stainless-retry-count", "0"), ("x-stainless-runtime", "CPython"),
     ("x-stainless-runtime-version", "3.12.3")],
    [("user-agent", "OpenAI/JS 6.9.0"), ("x-stainless-lang", "js"), ("x-stainless-os", "MacOS"),
     ("x-stainless-runtime", "node"), ("x-stainless-runtime-version", "v22.11.0")],
    [("user-agent", "Anthropic/Python 0.74.0"), ("anthropic-version", "2023-06-01")],
    [("user-agent", "curl/8.5.0")], [("user-agent", "python-requests/2.32.3")], [],
]


def target(pair):
    return text(pair[0]) + text(pair[1])


def head():
    """A head as crates/captures/src/capture/packing.rs packs it."""
    endpoint, stream = one("chat.completions", "chat.completions", "messages", "responses", "embeddings"), one(True, False)
    plan, seed, alias = random.sample(TARGETS, random.randrange(1, 4)), num(random.getrandbits(64)), one("auto", "auto", "fast", "smart", "cheap")
    owner, key, ok = one("usr_admin", id_of("usr_")), id_of("key_"), random.random() < 0.8
    at, took, none = num(1_764_000_000_000_000 + random.randrange(10**14)), random.randrange(20, 9000), b"\0"
    request = b"".join([
        text(endpoint), text(alias), text(alias), none, many([text(need) for need in one([], [], ["tools"], ["json"])]),
        num(random.randrange(5, 4000)), maybe(num, one(None, 1024)), none, flag(stream), num(random.randrange(1, 9)),
        num(one(0, 0, 3)), num(0), num(0), flag(False), maybe(text, one(None, "en")), num(0),
    ])
    health = [
        text(f"{provider}/{model}") + b"\0" + flag(True) + none + maybe(num, random.randrange(10**6)) + num(one(0, 0, 1, 2)) + none * 3
        for provider, model in plan if random.random() < 0.7
    ]
    principal = maybe(text, key) + maybe(text, owner) + one(num(0), num(1) + text("team") + text("search")) + num(0) + none
    inputs = num(3) + at + request + num(0) + principal + seed + many(health)
    decision = b"".join([
        target(plan[0]), text(one("balanced", "default", alias, "direct")), maybe(text, one("default", None, "code")),
        text(one("priority", "weighted", "fastest", "cheapest")), maybe(text, alias), text(hexes(12)), seed, real(one(1.0, 0.5)),
        many([target(each) for each in plan]), many([target(each) + flag(True) + none for each in plan]), num(0),
    ])
    status = 200 if ok else one(429, 500)
    attempt = target(plan[0]) + none + maybe(num, status) + maybe(text, None if ok else "status") + num(took)
    usage = num(random.randrange(5, 4000)) + num(random.randrange(900)) + num(random.randrange(9000)) + maybe(num, one(None, 0)) + flag(False)
    fields = b"".join([
        num(1), text(id_of("req_")), at, num(0 if ok else 1), text(endpoint), text(owner), maybe(text, key), none * 3, flag(stream),
        num(status), num(0) * 2, flag(stream), b"\1" + inputs, b"\1" + decision, num(random.randrange(3, 40)), many([attempt]),
        b"\1" + target(plan[0]) + none if ok else none, one(none, b"\1" + usage), maybe(real, one(None, random.random() / 100)),
        maybe(num, one(None, random.randrange(900))), num(took), flag(True), flag(False) * 5, none * 4, flag(False),
    ])
    sent = [("host", one("localhost:8080", "127.0.0.1:8080", "gateway.example.com")), ("accept", one("*/*", "application/json")),
            ("accept-encoding", "gzip, deflate"), ("connection", "keep-alive"), ("content-type", "application/json"),
            ("content-length", str(random.randrange(100, 9999))), *one(*CLIENTS)]
    got = [("content-type", "text/event-stream; charset=utf-8" if stream else "application/json"),
           ("x-request-id", one("req_", "") + hexes(24)), ("date", one("Mon, 24 Nov 2025 16:00:00 GMT", "Sun, 22 Nov 2026 08:12:41 GMT")),
           ("content-length", str(random.randrange(100, 9999))), *one([], [("cache-control", "no-cache"), ("transfer-encoding", "chunked")],
           [("x-ratelimit-limit-requests", "10000"), ("x-ratelimit-remaining-requests", "9999"), ("x-ratelimit-limit-tokens", "200000")])]
    sent, got = (b"".join(text(part) for pair in headers for part in pair) for headers in (sent, got))
    return b"\x01" + struct.pack(">II", len(fields), len(sent)) + fields + sent + got


def prose(folder):
    """Paragraphs of English, from all Markdown files below a folder."""
    for file in sorted(pathlib.Path(folder).rglob("README.md")):
        for paragraph in file.read_text(errors="ignore").split("\n\n"):
            if len(paragraph) > 150 and re.match("[A-Z][a-z]", paragraph) and not re.search("http|`.*`.*`|[|].*[|]", paragraph):
                yield paragraph.strip().replace("\n", " ")


def bodies(folder):
    """Recorded exchanges, and chats about nothing in English."""
    for file in sorted((ROOT / "tests/data").glob("recorded_*.jsonl")):
        for line in file.read_text().splitlines():
            exchange = json.loads(line)
            request, response = json.dumps(exchange.get("request") or {}), str(exchange.get("response") or "")
            if len(request) + len(response) < 6000:
                yield request, response
    english = "\n\n".join(prose(folder))
    for number in range(1500):
        at, asked, said = random.randrange(len(english) - 3000), random.randrange(100, 1500), random.randrange(100, 1500)
        messages = [{"role": "user", "content": english[at:at + asked]}]
        if number % 3 == 0:
            messages.insert(0, {"role": "system", "content": "You are a helpful assistant."})
        request = {"model": one("auto", "gpt-5", "fast"), "messages": messages, **one({}, {"temperature": 0.2})}
        message = {"role": "assistant", "content": english[at + asked:at + asked + said]}
        usage = {"prompt_tokens": asked // 4, "completion_tokens": said // 4, "total_tokens": (asked + said) // 4}
        response = {"id": "chatcmpl-" + hexes(8), "object": "chat.completion", "created": 1_764_000_000 + number, "model": "gpt-5",
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        yield json.dumps(request), json.dumps(response)


def record(head, request="", response=""):
    """What is compressed of a small capture, or of the head of a large one."""
    request = request.encode()
    return struct.pack(">II", len(head), len(request)) + head + request + response.encode()


def train(samples, out):
    with tempfile.TemporaryDirectory() as folder:
        for count, sample in enumerate(samples):
            pathlib.Path(folder, str(count)).write_bytes(sample)
        arguments = [f"--maxdict={12 << 10}", "--dictID=3", "-1", "-q", "-f", "-o", out]
        subprocess.run(["zstd", "--train", "-r", folder, *arguments], check=True)


if __name__ == "__main__":
    samples = [record(head(), *both) for both in bodies(sys.argv[1])]
    samples += [record(head()) for _ in range(len(samples) // 2)]
    train(samples, ROOT / "crates/captures/src/archive/captures.zdict")
