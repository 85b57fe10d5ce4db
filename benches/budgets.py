#!/usr/bin/env python3
"""Attacks on budgets: what the provider bills beside what the gateway says, for keys of one dollar.

    benches/budgets.py BINARY [WORD]
    benches/budgets.py --url URL --provider-port PORT --keys KEY,KEY,… [WORD]
    benches/litellm.py [WORD]

The first form starts a rerouter with a new data directory. The second asks any gateway that sends
`model: auto` to an OpenAI-compatible provider at http://127.0.0.1:PORT/v1 for 1000 USD per million
tokens of prompt and answer; each attack takes the next key, which has a new budget of one dollar.
The third does so with LiteLLM. With WORD only the attacks that have it in their names.

The provider makes 200 tokens a second and sums its own bill. It bills an answer that the gateway no
longer reads: a whole one in full, a stream until it is cancelled.

"Refused with room" counts refusals (402, 422, 429) for which the dollar had room by the provider's bill:
that of answers that ended, the most that running ones can come to, and one answer more.
"""
import argparse
import asyncio
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

RATE = 200
BUDGET = 1.0
USD_PER_TOKEN = 0.001
PROMPT = 7
ADMIN = 'rtr_admin_' + '0' * 40


class Provider:
    """Sums what it bills, and the part that it told the gateway."""

    def __init__(self):
        self.bill = self.told = self.requests = 0
        # By `seed`, by which clients number what they ask: what it comes to, and when it ended.
        self.answers = {}

    async def serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b'\r\n\r\n'):
                if head.startswith(b'GET'):
                    writer.write(b'HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n')
                    continue
                length = next(int(line[15:]) for line in head.split(b'\r\n')
                              if line.lower().startswith(b'content-length:'))
                asked = json.loads(await reader.readexactly(length))
                self.requests += 1
                tokens = min(asked.get('max_tokens') or 100, 100)
                answer = self.answers[asked['seed']] = [PROMPT, math.inf]
                make = self.stream if asked.get('stream') else self.whole
                try:
                    await make(writer, reader, tokens, answer)
                finally:
                    answer[1] = time.monotonic()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        writer.close()

    async def whole(self, writer, _, tokens, answer):
        self.bill += PROMPT + tokens
        answer[0] += tokens
        await asyncio.sleep(tokens / RATE)
        body = json.dumps({
            'id': 'x', 'object': 'chat.completion', 'model': 'm', 'created': 1,
            'choices': [{'index': 0, 'finish_reason': 'stop',
                         'message': {'role': 'assistant', 'content': 'word ' * tokens}}],
            'usage': usage(tokens)}).encode()
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'
                     b'content-length: %d\r\n\r\n' % len(body) + body)
        await writer.drain()
        self.told += PROMPT + tokens

    async def stream(self, writer, reader, tokens, answer):
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n'
                     b'connection: close\r\n\r\n')
        self.bill += PROMPT
        gone = asyncio.ensure_future(reader.read(1))
        gone.add_done_callback(lambda gone: gone.cancelled() or gone.exception())
        for _ in range(tokens):
            writer.write(event({'choices': [{'index': 0, 'delta': {'content': 'word '}}]}))
            await writer.drain()
            self.bill += 1
            answer[0] += 1
            done, _ = await asyncio.wait([gone], timeout=1 / RATE)
            if done:
                raise ConnectionResetError
        gone.cancel()
        end = {'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'stop'}]}
        writer.write(event(end) + event({'choices': [], 'usage': usage(tokens)})
                     + b'data: [DONE]\n\n')
        await writer.drain()
        self.told += PROMPT + tokens
        raise ConnectionResetError


def usage(tokens):
    return {'prompt_tokens': PROMPT, 'completion_tokens': tokens, 'total_tokens': PROMPT + tokens}


def event(value):
    return b'data: ' + json.dumps(value).encode() + b'\n\n'


# What was asked, by `seed`: the most it comes to, when it was asked, when it ended, its status.
ASKED = []


async def ask(to, key, body, leave_after=None):
    """The status of an answer, 0 without one. Leaves after some seconds if told so."""
    most = PROMPT + min(body.get('max_tokens', 100), 100)
    asked = [most, time.monotonic(), math.inf, 0]
    ASKED.append(asked)
    sent = json.dumps({'model': 'auto', 'messages': [{'role': 'user', 'content': 'hello'}],
                       'seed': len(ASKED) - 1, **body})
    asked[3] = await answered(to, key, sent, leave_after)
    asked[2] = time.monotonic()
    return asked[3]


def refused_with_room(since, answers):
    """How many refusals there were although the provider's bill had room while they were made."""
    def committed(start, end):
        for seed, (bill, ended) in answers.items():
            most, asked, left, _ = ASKED[seed]
            if since <= seed and asked <= end:
                yield most if max(ended, left) >= start else bill

    return sum((sum(committed(start, end)) + most) * USD_PER_TOKEN <= BUDGET
               for most, start, end, status in ASKED[since:] if status in (402, 422, 429))


async def answered(to, key, sent, leave_after):
    reader, writer = await asyncio.open_connection(*to)
    writer.write(f'POST /v1/chat/completions HTTP/1.1\r\nhost: {to[0]}:{to[1]}\r\nauthorization: Bearer {key}\r\n'
                 f'content-type: application/json\r\nconnection: close\r\n'
                 f'content-length: {len(sent)}\r\n\r\n{sent}'.encode())
    try:
        answer = await asyncio.wait_for(reader.read(-1), leave_after)
        return int(answer[9:12] or 0)
    except (asyncio.TimeoutError, OSError, ValueError):
        return 0
    finally:
        writer.transport.abort()


async def clients(at_once, seconds, one):
    """Statuses of what this many clients ask again and again, until each was refused five times."""
    until, seen = time.monotonic() + seconds, {}

    async def client():
        refused = 0
        while refused < 5 and time.monotonic() < until:
            status = await one()
            seen[status] = seen.get(status, 0) + 1
            if status not in (0, 200):
                refused += 1
                await asyncio.sleep(0.5)
    await asyncio.gather(*(client() for _ in range(at_once)))
    return seen


ATTACKS = {
    '64 at once, max_tokens 50': lambda to, key: clients(64, 20, lambda: ask(to, key, {'max_tokens': 50})),
    '64 at once, no max_tokens': lambda to, key: clients(64, 20, lambda: ask(to, key, {})),
    '16 streams, read whole': lambda to, key: clients(
        16, 20, lambda: ask(to, key, {'stream': True, 'max_tokens': 50})),
    '16 streams, left half way': lambda to, key: clients(
        16, 20, lambda: ask(to, key, {'stream': True, 'max_tokens': 100}, 0.25)),
    '16 whole answers, left at 90 %': lambda to, key: clients(
        16, 20, lambda: ask(to, key, {'max_tokens': 100}, 0.45)),
    'spelled members': lambda to, key: clients(8, 10, lambda: ask(to, key, {
        'max_tokens': 1, 'Max_Tokens': 100, 'maxTokens': 100, 'MAX_TOKENS': 100})),
}


class Rerouter:
    health = '/health'

    def __init__(self, binary, provider_port):
        self.dir, self.port = Path(tempfile.mkdtemp()), free_port()
        (self.dir / 'routing.yaml').write_text(json.dumps({
            'providers': {'p': {'protocol': 'openai', 'api_key': '${P_API_KEY}',
                                'base_url': f'http://127.0.0.1:{provider_port}/v1'}},
            'models': {'p/m': {'input_per_mtok': 1000, 'output_per_mtok': 1000}},
            'recipes': {'r': {'rules': [{'name': 'd', 'targets': [{'target': 'p/m'}]}]}},
            'aliases': {'auto': 'r'}}))
        (self.dir / 'server.yaml').write_text(json.dumps({
            'listeners': [{'address': f'127.0.0.1:{self.port}'}], 'data_dir': str(self.dir / 'data'),
            'metrics': {'address': f'127.0.0.1:{free_port()}'},
            'routing': {'file': str(self.dir / 'routing.yaml')}}))
        self.command = [binary, 'serve', '--config', self.dir / 'server.yaml']
        self.env = {'PATH': os.environ['PATH'], 'ADMIN_API_KEY': ADMIN, 'P_API_KEY': 'k',
                    'HOME': str(self.dir)}
        self.start()

    def start(self):
        # With its children it is a group of its own.
        self.process = subprocess.Popen(
            self.command, env=self.env, cwd=self.dir, start_new_session=True,
            stdout=open(self.dir / 'log', 'a'), stderr=subprocess.STDOUT)
        until = time.monotonic() + 120
        while self.process.poll() is None and time.monotonic() < until:
            try:
                return self.call('GET', self.health)
            except OSError:
                time.sleep(0.05)
        raise SystemExit((self.dir / 'log').read_text())

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def call(self, method, path, body=None):
        request = urllib.request.Request(
            f'http://127.0.0.1:{self.port}{path}', method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={'authorization': f'Bearer {ADMIN}', 'content-type': 'application/json'})
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
        return json.loads(text) if text[:1] in b'{[' else text

    def key(self):
        limits = {'budget': {'usd': BUDGET, 'per': 'month'}}
        made = self.call('POST', '/v1/router/keys', {'name': 'k', 'limits': limits})
        return made['id'], made['key']

    def budget(self, key_id):
        return self.call('GET', f'/v1/router/keys/{key_id}')['usage']['budget']


def free_port():
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


async def attack(name, run, to, provider, key, budget):
    since = len(ASKED)
    before = provider.bill, provider.told, provider.requests
    seen = await run(to, key)
    # What is read on without a client ends, and holds go back.
    await asyncio.sleep(7)
    bill, told, asked = (now - then for now, then in
                         zip((provider.bill, provider.told, provider.requests), before))
    bill, told = bill * USD_PER_TOKEN, told * USD_PER_TOKEN
    held_back = refused_with_room(since, provider.answers)
    probe = await ask(to, key, {'max_tokens': 1})
    tell(name, asked, bill, told, held_back, budget and budget(), probe, seen)


def tell(name, asked, bill, told, held_back, now, probe, seen):
    row = [name, asked, f'{bill:.3f}', f'{told:.3f}', f'{max(bill - BUDGET, 0):.3f}', held_back]
    for member in ('spent_usd', 'estimated_usd', 'lost_usd', 'remaining_usd'):
        row.append(f'{now[member]:.3f}' if now and member in now else '-')
    print(' | '.join(map(str, row + [probe, json.dumps(seen)])), flush=True)


async def kills(gateway, provider):
    """Twenty starts that end by kill -9, with one chat each or none."""
    for name, chats in [('20 kills without a request', 0), ('20 kills with a chat each', 1)]:
        key_id, key = gateway.key()
        before = provider.bill, provider.told, provider.requests
        for _ in range(20):
            for _ in range(chats):
                await ask(('127.0.0.1', gateway.port), key, {'max_tokens': 1})
            gateway.kill()
            await asyncio.to_thread(gateway.start)
        bill, told, asked = (now - then for now, then in
                             zip((provider.bill, provider.told, provider.requests), before))
        probe = await ask(('127.0.0.1', gateway.port), key, {'max_tokens': 1})
        tell(name, asked, bill * USD_PER_TOKEN, told * USD_PER_TOKEN, '-', gateway.budget(key_id),
             probe, {})


async def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument('binary', nargs='?')
    arguments.add_argument('word', nargs='?', default='')
    arguments.add_argument('--url')
    arguments.add_argument('--provider-port', type=int, default=0)
    arguments.add_argument('--keys', default='')
    given = arguments.parse_args()
    port = given.provider_port or free_port()
    if not given.url:
        binary = Path(given.binary).resolve()
        return await against(lambda: Rerouter(binary, port), port, given.word)
    provider = Provider()
    await listen(provider, port)
    host, at = given.url.split('//')[-1].rstrip('/').rsplit(':', 1)
    keys = iter(given.keys.split(','))
    for name, run in ATTACKS.items():
        if (given.binary or '') in name:
            await attack(name, run, (host, int(at)), provider, next(keys), None)


async def listen(provider, port):
    await asyncio.start_server(provider.serve, '127.0.0.1', port, backlog=1024)
    print('attack | answers asked for | billed USD | told USD | beyond the budget | '
          'refused with room | spent | estimated | lost | remaining | next request | statuses')


async def against(start, port, word):
    """All attacks with the word in their names, on a gateway that `start` starts."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    provider = Provider()
    await listen(provider, port)
    gateway = await asyncio.to_thread(start)
    try:
        for name, run in ATTACKS.items():
            if word in name:
                key_id, key = gateway.key()
                to = ('127.0.0.1', gateway.port)
                await attack(name, run, to, provider, key, lambda: gateway.budget(key_id))
        if word in 'kills':
            await kills(gateway, provider)
    finally:
        gateway.kill()


if __name__ == '__main__':
    asyncio.run(main())
