#!/usr/bin/env python3
"""Sends a gateway the requests by which `packaging/profile` learns what a release has to do fast.

    packaging/training.py BINARY

Two gateways serve from empty directories, one of them without captures. Each answers the same
numbers of requests of the same bodies, from providers in this process: whole answers and streams,
small and large, passed on and translated, of keys with and without limits. Then SIGTERM ends them.
"""
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ADMIN = 'rtr_admin_' + '0' * 40
CONNECTIONS = 16
# Seconds for all requests of one gateway.
PATIENCE = 600
EVENTS = 24
WORDS = ('the a of and to in that order which request answer model stream token limit price key '
         'proxy gateway capture replay budget write read small large first last').split()

CHAT = {'id': 'x', 'object': 'chat.completion', 'model': 'm', 'created': 1,
        'choices': [{'index': 0, 'finish_reason': 'stop',
                     'message': {'role': 'assistant', 'content': 'An answer of some words.'}}],
        'usage': {'prompt_tokens': 70, 'completion_tokens': 6, 'total_tokens': 76}}
MESSAGE = {'id': 'x', 'type': 'message', 'role': 'assistant', 'model': 'm',
           'content': [{'type': 'text', 'text': 'An answer of some words.'}],
           'stop_reason': 'end_turn', 'stop_sequence': None,
           'usage': {'input_tokens': 70, 'output_tokens': 6}}


def chat_events():
    def chunk(delta, finish=None, **more):
        choice = {'index': 0, 'delta': delta, 'finish_reason': finish}
        return {'id': 'x', 'object': 'chat.completion.chunk', 'created': 1, 'model': 'm',
                'choices': [choice], **more}
    events = [chunk({'role': 'assistant', 'content': ''})]
    events += [chunk({'content': f' {WORDS[at % len(WORDS)]}'}) for at in range(EVENTS)]
    events += [chunk({}, 'stop'), {**chunk({}), 'choices': [], 'usage': CHAT['usage']}]
    return [f'data: {json.dumps(event)}\n\n' for event in events] + ['data: [DONE]\n\n']


def message_events():
    start = {**MESSAGE, 'content': [], 'stop_reason': None}
    events = [{'type': 'message_start', 'message': start},
              {'type': 'content_block_start', 'index': 0,
               'content_block': {'type': 'text', 'text': ''}}]
    events += [{'type': 'content_block_delta', 'index': 0,
                'delta': {'type': 'text_delta', 'text': f' {WORDS[at % len(WORDS)]}'}}
               for at in range(EVENTS)]
    events += [{'type': 'content_block_stop', 'index': 0},
               {'type': 'message_delta', 'usage': {'output_tokens': EVENTS},
                'delta': {'stop_reason': 'end_turn', 'stop_sequence': None}},
               {'type': 'message_stop'}]
    return [f'event: {event["type"]}\ndata: {json.dumps(event)}\n\n' for event in events]


async def provide(reader, writer):
    """Answers as OpenAI, or as Anthropic at its path."""
    whole = {False: json.dumps(CHAT).encode(), True: json.dumps(MESSAGE).encode()}
    events = {False: chat_events(), True: message_events()}
    try:
        while True:
            head = (await reader.readuntil(b'\r\n\r\n')).lower()
            length = int(head.split(b'content-length:')[1].split(b'\r\n')[0])
            streams = b'"stream":true' in await reader.readexactly(length)
            anthropic = b'/messages' in head.split(b'\r\n')[0]
            if not streams:
                body = whole[anthropic]
                writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'
                             b'content-length: %d\r\n\r\n' % len(body) + body)
                continue
            writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n'
                         b'transfer-encoding: chunked\r\n\r\n')
            for event in events[anthropic]:
                writer.write(b'%x\r\n%s\r\n' % (len(event), event.encode()))
                # Lets the gateway read one event at a time.
                await asyncio.sleep(0)
            writer.write(b'0\r\n\r\n')
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        writer.close()


def free_port():
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


async def start(binary, directory, provider, captures):
    port, base = free_port(), f'http://127.0.0.1:{provider}'
    target = lambda name: {'rules': [
        {'name': 'long', 'when': 'prompt_tokens > 900000', 'targets': [{'target': name}]},
        {'name': 'default', 'targets': [{'target': name}]}]}
    (directory / 'routing.yaml').write_text(json.dumps({
        'providers': {
            'openai': {'protocol': 'openai', 'api_key': '${P_API_KEY}', 'base_url': base + '/v1'},
            'anthropic': {'protocol': 'anthropic', 'api_key': '${P_API_KEY}', 'base_url': base}},
        'models': {name: {'input_per_mtok': 1, 'output_per_mtok': 4}
                   for name in ('openai/m', 'anthropic/m')},
        'recipes': {'main': target('openai/m'), 'other': target('anthropic/m')},
        'aliases': {'auto': 'main', 'claude': 'other'}}))
    (directory / 'server.yaml').write_text(json.dumps({
        'listeners': [{'address': f'127.0.0.1:{port}'}], 'data_dir': str(directory / 'data'),
        'metrics': {'address': f'127.0.0.1:{free_port()}'}, 'threads': 2,
        'capture': {'enabled': captures}, 'routing': {'file': str(directory / 'routing.yaml')}}))
    env = {**os.environ, 'HOME': str(directory), 'ADMIN_API_KEY': ADMIN, 'P_API_KEY': 'k'}
    process = subprocess.Popen([binary, 'serve', '--config', directory / 'server.yaml'], env=env,
                               stdout=open(directory / 'log', 'w'), stderr=subprocess.STDOUT)
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            _, writer = await asyncio.open_connection('127.0.0.1', port)
            writer.close()
            return process, port
        except OSError:
            await asyncio.sleep(0.05)
    process.kill()
    raise SystemExit((directory / 'log').read_text())


async def ask(port, path, key, bodies, count):
    """Sends `count` requests over some connections, each with one of the bodies."""
    heads = [(f'POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {key}\r\n'
              f'user-agent: training\r\naccept: */*\r\ncontent-type: application/json\r\n'
              f'content-length: {len(body)}\r\n\r\n').encode() + body for body in bodies]
    answers = []

    async def connection(number):
        reader, writer = await asyncio.open_connection('127.0.0.1', port, limit=1 << 20)
        for at in range(number, count, CONNECTIONS):
            writer.write(heads[at % len(heads)])
            head = (await reader.readuntil(b'\r\n\r\n')).lower()
            if head.split(b' ')[1] not in (b'200', b'201'):
                raise SystemExit(f'{path}: {(head + await reader.read(2000)).decode()}')
            if b'content-length:' in head:
                length = int(head.split(b'content-length:')[1].split(b'\r\n')[0])
                answers[:] = [await reader.readexactly(length)]
                continue
            while (size := int(await reader.readline(), 16)) > 0:
                await reader.readexactly(size + 2)
            await reader.readline()
        writer.close()

    await asyncio.gather(*(connection(number) for number in range(min(CONNECTIONS, count))))
    return json.loads(answers[0]) if answers else None


def bodies(size, streams, model='auto'):
    draw = random.Random(size)
    made = []
    for _ in range(min(256, (4 << 20) // size)):
        text = ' '.join(draw.choices(WORDS, k=max(1, (size - 120) // 6)))
        body = {'model': model, 'max_tokens': 100, 'messages': [{'role': 'user', 'content': text}]}
        made.append(json.dumps({**body, **({'stream': True} if streams else {})},
                               separators=(',', ':')).encode())
    return made


async def send(port):
    keys = []
    for limits in ({}, {'rpm': 10_000_000, 'budget': {'usd': 1_000, 'per': 'month'}}):
        wanted = json.dumps({'name': 'training', 'limits': limits}).encode()
        made = await ask(port, '/v1/router/keys', ADMIN, [wanted], 1)
        keys.append(made['key'])
    chat, messages = '/v1/chat/completions', '/v1/messages'
    for size, count in ((600, 30_000), (8 << 10, 15_000), (100 << 10, 3_000)):
        await ask(port, chat, keys[0], bodies(size, False), count)
    await ask(port, chat, keys[0], bodies(600, True), 3_000)
    await ask(port, chat, keys[1], bodies(600, False), 4_000)
    for path, model in ((chat, 'claude'), (messages, 'auto'), (messages, 'claude')):
        for streams in (False, True):
            await ask(port, path, keys[0], bodies(2_000, streams, model), 1_000)


async def train(binary, provider, captures):
    with tempfile.TemporaryDirectory() as directory:
        process, port = await start(binary, Path(directory), provider, captures)
        try:
            await asyncio.wait_for(send(port), PATIENCE)
        except BaseException:
            process.kill()
            raise
        process.terminate()
        if process.wait() != 0:
            raise SystemExit((Path(directory) / 'log').read_text())


async def main(binary):
    server = await asyncio.start_server(provide, '127.0.0.1', 0, limit=1 << 20)
    provider = server.sockets[0].getsockname()[1]
    for captures in (True, False):
        await train(binary, provider, captures)


if __name__ == '__main__':
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    asyncio.run(main(sys.argv[1]))
