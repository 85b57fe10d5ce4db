#!/usr/bin/env python3
"""Attacks by senders without a credential, and by one key that reads nothing, on a gateway with its
defaults: memory, latency of another key's chats, and health, beside the same without an attack. Each
attack is made twice: on this gateway, and on a second one beside it. The second time shows what the
attack costs the chats by the load of the machine alone.

    benches/strangers.py BINARY [SECONDS [WORD]]

With WORD only the attacks that have it in their names.

The gateway, the provider, the attackers and those who measure share the machine. Attackers that
read run at a low priority, as they would be elsewhere.
"""
import asyncio
import json
import multiprocessing
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

BINARY = Path(sys.argv[1]).resolve()
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 8
WORD = sys.argv[3] if len(sys.argv) > 3 else ''
STREAMS = 99
OPEN = ['/openapi.json', '/health', '/version', '/', '/console', '/console/sign-in',
        '/console/assets/x/htmx.js', '/console/first-admin', '/nothing', '/v1/router/keys']
CHAT = json.dumps({'model': 'auto', 'messages': [{'role': 'user', 'content': 'hello'}]}).encode()
LARGE = json.dumps({'model': 'large', 'stream': True, 'messages': []}).encode()
ANSWER = json.dumps({
    'id': 'x', 'object': 'chat.completion', 'model': 'model', 'created': 1,
    'choices': [{'index': 0, 'finish_reason': 'stop',
                 'message': {'role': 'assistant', 'content': 'well'}}],
    'usage': {'prompt_tokens': 7, 'completion_tokens': 3, 'total_tokens': 10}}).encode()


def port():
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


def provider(at):
    """Answers `stream` with 100 MiB of events, and anything else at once."""
    event = b'data: ' + json.dumps({'choices': [{'index': 0, 'delta': {'content': 'x' * 1000}}]}
                                   ).encode() + b'\n\n'
    piece = event * ((64 << 10) // len(event))

    async def serve(reader, writer):
        try:
            while head := await reader.readuntil(b'\r\n\r\n'):
                length = next(int(line[15:]) for line in head.split(b'\r\n')
                              if line.lower().startswith(b'content-length:'))
                body = await reader.readexactly(length)
                if b'"stream"' in body:
                    writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n'
                                 b'connection: close\r\n\r\n')
                    for _ in range((100 << 20) // len(piece)):
                        writer.write(piece)
                        await writer.drain()
                    break
                writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'
                             b'content-length: %d\r\n\r\n' % len(ANSWER) + ANSWER)
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    async def run():
        await (await asyncio.start_server(serve, '127.0.0.1', at, backlog=4096)).serve_forever()
    asyncio.run(run())


def ask(at, head, body=b'', patience=3):
    """One request on a connection of its own; gives the status, 0 without an answer."""
    try:
        with socket.create_connection(('127.0.0.1', at), patience, ('127.0.0.2', 0)) as sock:
            sock.sendall(head + b'content-length: %d\r\n\r\n' % len(body) + body)
            return int(sock.recv(65536)[9:12] or 0)
    except (OSError, ValueError):
        return 0


def measure(at, key, until, out):
    """Chats of a normal key and looks at /health, until the time; the latencies."""
    chats, health, bad = [], [], 0
    chat = (f'POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{at}\r\nconnection: close\r\n'
            f'authorization: Bearer {key}\r\ncontent-type: application/json\r\n').encode()
    look = f'GET /health HTTP/1.1\r\nhost: 127.0.0.1:{at}\r\nconnection: close\r\n'.encode()
    while time.time() < until:
        for times, head, body in [(chats, chat, CHAT)] * 4 + [(health, look, b'')]:
            began = time.perf_counter()
            bad += ask(at, head, body) != 200
            times.append((time.perf_counter() - began) * 1e3)
            time.sleep(0.005)
    out.put((chats, health, bad))


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + payload


def fields(pairs):
    out = b''
    for name, value in pairs:
        out += b'\0'
        for text in (name.encode(), value.encode()):
            assert len(text) < 16_384
            length = len(text)
            out += bytes([length]) if length < 127 else bytes(
                [127] + ([length - 127] if length < 255 else
                         [(length - 127) & 127 | 128, (length - 127) >> 7]))
            out += text
    return out


def client_context():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(['h2'])
    return context


class Attack:
    """Connections that are opened and held."""

    def __init__(self, ports, key):
        self.plain, self.tls, self.key, self.held, self.sent = *ports, key, [], 0
        self.context, self.bytes = None, None

    def opening(self, path, window, body, streams):
        pairs = [(':method', 'POST' if body else 'GET'), (':scheme', 'https'), (':path', path),
                 (':authority', f'localhost:{self.tls}')]
        if body:
            pairs += [('authorization', f'Bearer {self.key}'), ('content-type', 'application/json')]
        block = fields(pairs)
        opening = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(
            4, 0, 0, b'\0\4' + window.to_bytes(4, 'big'))
        if window:
            opening += frame(8, 0, 0, ((1 << 31) - 1 - 65535).to_bytes(4, 'big'))
        for stream in range(1, 2 * streams, 2):
            opening += frame(1, 4 if body else 5, stream, block)
            if body:
                opening += frame(0, 1, stream, body)
        return opening

    def h2(self, path, window, body=None, streams=STREAMS):
        self.context = self.context or client_context()
        self.bytes = self.bytes or self.opening(path, window, body, streams)
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(10)
        raw.connect(('127.0.0.1', self.tls))
        sock = self.context.wrap_socket(raw)
        sock.sendall(self.bytes)
        self.sent += len(self.bytes)
        self.held.append(sock)

    def h1(self, path, body=None):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(10)
        sock.connect(('127.0.0.1', self.plain))
        head = f'{"POST" if body else "GET"} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.plain}\r\n'
        if body:
            head += f'authorization: Bearer {self.key}\r\ncontent-type: application/json\r\n'
            head += f'content-length: {len(body)}\r\n'
        asked = head.encode() + b'\r\n' + (body or b'')
        sock.sendall(asked)
        self.sent += len(asked)
        self.held.append(sock)


def loops(at, path, connections, until):
    """So many connections that ask one time after the other, and read."""
    os.nice(10)
    async def one():
        asked = f'GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{at}\r\n\r\n'.encode()
        while time.time() < until:
            try:
                reader, writer = await asyncio.open_connection('127.0.0.1', at)
                while time.time() < until:
                    writer.write(asked)
                    head = await reader.readuntil(b'\r\n\r\n')
                    length = next(int(line[15:]) for line in head.split(b'\r\n')
                                  if line.lower().startswith(b'content-length:'))
                    await reader.readexactly(length)
            except (OSError, asyncio.IncompleteReadError, StopIteration):
                await asyncio.sleep(0.05)

    async def run():
        await asyncio.gather(*(one() for _ in range(connections)))
    asyncio.run(run())


def captures(at, key, until):
    """One key writes bodies of 1 MiB that do not compress, over 16 connections."""
    async def one():
        text = os.urandom(768 << 10).hex()[:1 << 20]
        body = json.dumps({'model': 'auto',
                           'messages': [{'role': 'user', 'content': text}]}).encode()
        asked = (f'POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{at}\r\n'
                 f'authorization: Bearer {key}\r\ncontent-type: application/json\r\n'
                 f'content-length: {len(body)}\r\n\r\n').encode() + body
        reader, writer = await asyncio.open_connection('127.0.0.1', at)
        while time.time() < until:
            writer.write(asked)
            head = await reader.readuntil(b'\r\n\r\n')
            length = next(int(line[15:]) for line in head.split(b'\r\n')
                          if line.lower().startswith(b'content-length:'))
            await reader.readexactly(length)

    async def run():
        await asyncio.gather(*(one() for _ in range(16)))
    asyncio.run(run())


def attack(kind, ports, key, until, out):
    made = Attack(ports, key)
    what, count, *more = kind
    try:
        if what == 'captures':
            captures(ports[0], key, until)
        if what == 'loops':
            loops(ports[0], more[0], count, until)
        for _ in range(count if what in ('h1', 'h2') else 0):
            if time.time() >= until:
                break
            try:
                getattr(made, what)(*more)
            except (OSError, ssl.SSLError):
                pass
        time.sleep(max(0, until - time.time()))
    finally:
        out.put((len(made.held), made.sent))


def resident(process):
    text = Path(f'/proc/{process}/status').read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith('VmRSS')) / 1024


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def run(gateway, measured, attacked, kind):
    """Both sides are the ports and the keys of a gateway."""
    until = time.time() + SECONDS
    out = [multiprocessing.Queue(), multiprocessing.Queue()]
    (ports, keys), (on, by) = measured, attacked
    others = [multiprocessing.Process(target=measure, args=(ports[0], keys[0], until, out[0]))]
    if kind:
        others.append(multiprocessing.Process(target=attack,
                                              args=(kind, on, by[1], until, out[1])))
    for other in others:
        other.start()
    most = 0.0
    while time.time() < until + 0.2:
        if gateway.poll() is not None:
            return None
        most = max(most, resident(gateway.pid))
        time.sleep(0.05)
    chats, health, bad = out[0].get(timeout=60)
    held, sent = out[1].get(timeout=60) if kind else (0, 0)
    for other in others:
        other.join()
    return dict(most=most, held=held, sent=sent, bad=bad, chats=len(chats),
                p50=quantile(chats, .5), p99=quantile(chats, .99), health=len(health),
                slowest=max(health, default=0))


def line(name, got, beside=None):
    if got is None:
        return print(f'| {name} | the gateway ended |', flush=True)
    print(f"| {name} | {got['held']} | {got['sent'] / 1024:.0f} | {got['most']:.0f} "
          f"| {got['p50']:.1f} | {got['p99']:.1f} | {beside['p99'] if beside else got['p99']:.1f} "
          f"| {got['chats']} | {got['slowest']:.0f} | {got['bad']} |", flush=True)


class Side:
    """A gateway with two listeners, and two keys of it."""

    def __init__(self, place, name, large, small):
        self.place = place / name
        self.place.mkdir()
        self.ports = plain, tls = port(), port()
        for made in ('cert.pem', 'key.pem'):
            (self.place / made).write_bytes((place / made).read_bytes())
        (self.place / 'routing.yaml').write_text(
            'providers:\n'
            f'  large: {{ protocol: openai, api_key: x, base_url: "http://127.0.0.1:{large}/v1" }}\n'
            f'  small: {{ protocol: openai, api_key: x, base_url: "http://127.0.0.1:{small}/v1" }}\n'
            'recipes:\n' + ''.join(
                f'  {name}:\n    rules:\n      - {{ name: default, strategy: priority, '
                f'targets: [ {{ target: {name}/model }} ] }}\n' for name in ('large', 'small'))
            + 'aliases: { auto: small, large: large }\n')
        (self.place / 'rerouter.yaml').write_text(
            f'listeners:\n  - address: 127.0.0.1:{plain}\n  - address: 127.0.0.1:{tls}\n'
            '    tls: { cert: cert.pem, key: key.pem }\n'
            f'metrics: {{ address: "127.0.0.1:{port()}" }}\ndata_dir: data\nthreads: 2\n'
            'routing: { file: routing.yaml }\n')
        admin = 'admin-0123456789abcdef0123456789abcdef'
        self.log = open(self.place / 'log', 'wb')
        self.gateway = subprocess.Popen(
            [BINARY, 'serve', '--config', 'rerouter.yaml'], cwd=self.place,
            env={'ADMIN_API_KEY': admin, 'PATH': os.environ['PATH']}, stdout=self.log,
            stderr=self.log)
        look, began = b'GET /health HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n' % plain, time.time()
        while ask(plain, look) != 200:
            if self.gateway.poll() is not None or time.time() > began + 30:
                sys.exit((self.place / 'log').read_text())
            time.sleep(0.05)
        self.keys = []
        for _ in range(2):
            made = urllib.request.Request(f'http://127.0.0.1:{plain}/v1/router/keys', b'{}', {
                'authorization': f'Bearer {admin}', 'content-type': 'application/json'})
            self.keys.append(json.load(urllib.request.urlopen(made))['key'])

    def stored(self):
        return sum(file.stat().st_size for file in (self.place / 'data').rglob('*'))

    def end(self):
        if self.gateway.poll() is None:
            self.gateway.send_signal(signal.SIGTERM)
            self.gateway.wait()


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory(prefix='rerouter-strangers-') as place:
        place = Path(place)
        large, small = port(), port()
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
                        'ec_paramgen_curve:prime256v1', '-nodes', '-batch', '-keyout', 'key.pem',
                        '-out', 'cert.pem', '-days', '2', '-subj', '/CN=localhost'], cwd=place,
                       check=True, capture_output=True)
        serving = [multiprocessing.Process(target=provider, args=(at,), daemon=True)
                   for at in (large, small)]
        for one in serving:
            one.start()
        sides = []
        try:
            sides += [Side(place, 'one', large, small)]
            sides += [Side(place, 'two', large, small)]
            one, two = ((side.ports, side.keys) for side in sides)
            gateway = sides[0].gateway
            print('| attack | connections held | KiB sent | RSS at most, MiB | chat p50, ms | p99 '
                  '| p99 with the attack on the other | chats | slowest health, ms | not 200 |\n'
                  '|---|---|---|---|---|---|---|---|---|---|')
            run(gateway, one, one, None)
            line('none', run(gateway, one, one, None))
            posts = '/v1/chat/completions'
            for name, kind in [
                ('43 × 99 streams, window 0: /openapi.json', ('h2', 43, '/openapi.json', 0)),
                *[(f'60 × 99 streams, window 0: {path}', ('h2', 60, path, 0)) for path in OPEN],
                ('60 × 99 streams, socket unread: /openapi.json',
                 ('h2', 60, '/openapi.json', 1 << 24)),
                ('60 × 99 streams, socket unread: /console/sign-in',
                 ('h2', 60, '/console/sign-in', 1 << 24)),
                ('16 connections that read: /openapi.json', ('loops', 16, '/openapi.json')),
                ('256 connections that read: /openapi.json', ('loops', 256, '/openapi.json')),
                ('1,500 connections, unread: /openapi.json', ('h1', 1500, '/openapi.json')),
                ('200 TLS connections: /version', ('h2', 200, '/version', 1 << 24, None, 1)),
                ('60 answers of 100 MiB, HTTP/1, unread', ('h1', 60, posts, LARGE)),
                ('256 answers of 100 MiB, HTTP/1, unread', ('h1', 256, posts, LARGE)),
                ('60 × 8 answers of 100 MiB, window 0', ('h2', 60, posts, 0, LARGE, 8)),
                ('60 × 99 answers of 100 MiB, window 0', ('h2', 60, posts, 0, LARGE)),
                ('60 × 99 answers of 100 MiB, socket unread', ('h2', 60, posts, 1 << 24, LARGE)),
            ]:
                if WORD in name:
                    line(name, run(gateway, one, one, kind), run(gateway, one, two, kind))
            size = sides[0].stored()
            line('16 connections of one key: 1 MiB of noise in hexadecimal digits each',
                 run(gateway, one, one, ('captures', 16)), run(gateway, one, two, ('captures', 16)))
            size = sides[0].stored() - size
            line('none, afterwards', run(gateway, one, one, None))
            warned = sum(b' WARN' in told for told in
                         (sides[0].place / 'log').read_bytes().splitlines())
            print(f'\ncaptures of that key: {size / SECONDS / (1 << 20):.1f} MiB a second on disk')
            print(f'warnings in the log of all of it: {warned}')
        finally:
            for side in sides:
                side.end()
            for one in serving:
                one.kill()


if __name__ == '__main__':
    main()
