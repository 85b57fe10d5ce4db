#!/usr/bin/env python3
"""How long a first request after a pause waits for its hold: p50 of keys' first requests beside
later ones, on SQLite and PostgreSQL, with and without fsync.

    benches/first_request.py BINARY [KEYS]

Each key asks three times, with and without a budget: first, again at once, and after 50 ms. The
first request of a key with a budget waits for one write of the store. Without fsync: SQLite in
/dev/shm, PostgreSQL with `fsync=off`.
"""
import http.client
import http.server
import json
import os
import pwd
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ADMIN = 'rtr_admin_' + '0' * 40
BODY = json.dumps({
    'model': 'auto', 'max_tokens': 3, 'messages': [{'role': 'user', 'content': 'hello'}]})
ANSWER = json.dumps({
    'id': 'x', 'object': 'chat.completion', 'model': 'm', 'created': 1,
    'choices': [{'index': 0, 'finish_reason': 'stop',
                 'message': {'role': 'assistant', 'content': 'x'}}],
    'usage': {'prompt_tokens': 7, 'completion_tokens': 1, 'total_tokens': 8}}).encode()


class Provider(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        self.rfile.read(int(self.headers['content-length']))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = ('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'
                f'content-length: {len(ANSWER)}\r\n\r\n')
        self.wfile.write(head.encode() + ANSWER)

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


class Postgres:
    def __init__(self, fsync):
        programs = max(Path('/usr/lib/postgresql').glob('*/bin'))
        self.dir, self.port = Path(tempfile.mkdtemp()), free_port()
        user = 'postgres' if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        if os.getuid() == 0:
            shutil.chown(self.dir, user, user)
        run = lambda *command: subprocess.run(
            ['runuser', '-u', user, '--', *map(str, command)] if os.getuid() == 0 else command,
            check=True, stdout=subprocess.DEVNULL, cwd=self.dir)
        run(programs / 'initdb', '-D', self.dir / 'data', '-A', 'trust', '-U', 'postgres', '-N')
        settings = f'-p {self.port} -k {self.dir} -c listen_addresses=127.0.0.1 -c fsync={fsync}'
        control = programs / 'pg_ctl', '-D', self.dir / 'data', '-w', '-l', self.dir / 'log'
        run(*control, '-o', settings, 'start')
        self.stop = lambda: run(*control, '-m', 'immediate', 'stop')
        self.url = f'postgres://postgres@127.0.0.1:{self.port}/postgres'


def start(binary, directory, provider, store):
    port = free_port()
    (directory / 'routing.yaml').write_text(json.dumps({
        'providers': {'p': {'protocol': 'openai', 'api_key': '${P_API_KEY}',
                            'base_url': f'http://127.0.0.1:{provider}/v1'}},
        'models': {'p/m': {'input_per_mtok': 1, 'output_per_mtok': 1}},
        'recipes': {'r': {'rules': [{'name': 'd', 'targets': [{'target': 'p/m'}]}]}},
        'aliases': {'auto': 'r'}}))
    (directory / 'server.yaml').write_text(json.dumps({
        'listeners': [{'address': f'127.0.0.1:{port}'}], 'data_dir': str(directory / 'data'),
        'metrics': {'address': f'127.0.0.1:{free_port()}'},
        'routing': {'file': str(directory / 'routing.yaml')},
        **({'store': {'url': store}} if store else {})}))
    env = {'PATH': os.environ['PATH'], 'HOME': str(directory), 'ADMIN_API_KEY': ADMIN,
           'P_API_KEY': 'k',
           'REROUTER_MASTER_KEY': 'MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY='}
    process = subprocess.Popen([binary, 'serve', '--config', directory / 'server.yaml'], env=env,
                               stdout=open(directory / 'log', 'w'), stderr=subprocess.STDOUT)
    for _ in range(400):
        try:
            socket.create_connection(('127.0.0.1', port)).close()
            return process, port
        except OSError:
            time.sleep(0.05)
    raise SystemExit((directory / 'log').read_text())


def call(connection, path, key, body):
    began = time.perf_counter()
    connection.request('POST', path, body, {
        'authorization': f'Bearer {key}', 'content-type': 'application/json'})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status not in (200, 201):
        raise SystemExit(f'{path}: {answer.status} {text.decode()}')
    return json.loads(text), (time.perf_counter() - began) * 1e3


def measure(binary, keys, provider, name, store, within):
    directory = Path(tempfile.mkdtemp(dir=within))
    process, port = start(binary, directory, provider, store)
    connection = http.client.HTTPConnection('127.0.0.1', port)
    try:
        for limits in ({}, {'budget': {'usd': 1, 'per': 'month'}}):
            wanted = json.dumps({'name': 'k', 'limits': limits})
            make = lambda: call(connection, '/v1/router/keys', ADMIN, wanted)[0]['key']
            made = [make() for _ in range(keys)]
            ask = lambda key: call(connection, '/v1/chat/completions', key, BODY)[1]
            later = lambda key: time.sleep(0.05) or ask(key)
            took = [(ask(key), ask(key), later(key)) for key in made]
            row = [f'{statistics.median(column):.2f}' for column in zip(*took)]
            print(' | '.join([name, 'budget' if limits else 'none', *row]), flush=True)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory)


def main():
    binary, keys = Path(sys.argv[1]).resolve(), int((sys.argv[2:] or [40])[0])
    provider = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    print('store | limits | p50 of the first request, ms | at once | after 50 ms')
    for name, within in [('SQLite', None), ('SQLite, no fsync', '/dev/shm')]:
        measure(binary, keys, provider.server_port, name, None, within)
    for name, fsync in [('PostgreSQL', 'on'), ('PostgreSQL, no fsync', 'off')]:
        database = Postgres(fsync)
        try:
            measure(binary, keys, provider.server_port, name, database.url, None)
        finally:
            database.stop()
            shutil.rmtree(database.dir)


main()
