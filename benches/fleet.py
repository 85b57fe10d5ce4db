#!/usr/bin/env python3
"""What one gateway more costs the database that all share: fleets of 3, 10, 20 and 40 gateways on
one PostgreSQL with its default of 100 connections, at rest and under load.

    benches/fleet.py BINARY [GATEWAYS,…]

Printed a gateway and second: statements, rows that they return or change, and wake-ups
(notifications, times the connections that hear them). Of all: samples of connections that wait for
a lock, the most connections at once, and how long a DELETE of a key waits for all gateways. Under
load each gateway answers RATE requests a second of keys with budgets, and the fleet makes and
deletes up to four keys a second. A wait for a lock is looked for each 20 ms.
"""
import http.client
import itertools
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ADMIN = 'rtr_admin_' + '0' * 40
CHAT = json.dumps({
    'model': 'auto', 'max_tokens': 3, 'messages': [{'role': 'user', 'content': 'hello'}]})
ROUTING = {
    'providers': {'demo': {'protocol': 'mock'}},
    'models': {'demo/echo': {'input_per_mtok': 1, 'output_per_mtok': 1}},
    'recipes': {'r': {'rules': [{'name': 'd', 'targets': [{'target': 'demo/echo'}]}]}},
    'aliases': {'auto': 'r'}}
SECONDS, RATE, KEYS = 15, 2, 20


def free_port():
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


class Postgres:
    def __init__(self):
        self.programs = max(Path('/usr/lib/postgresql').glob('*/bin'))
        self.dir, self.port = Path(tempfile.mkdtemp()), free_port()
        self.user = 'postgres' if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        if os.getuid() == 0:
            shutil.chown(self.dir, self.user, self.user)
        self.run('initdb', '-D', self.dir / 'data', '-A', 'trust', '-U', 'postgres', '-N')
        settings = (f'-p {self.port} -k {self.dir} -c listen_addresses=127.0.0.1 -c fsync=off '
                    '-c max_connections=100 -c shared_preload_libraries=pg_stat_statements '
                    '-c pg_stat_statements.track_planning=off')
        self.control = '-D', self.dir / 'data', '-w', '-l', self.dir / 'log'
        self.run('pg_ctl', *self.control, '-o', settings, 'start')
        self.psql = subprocess.Popen(
            [self.programs / 'psql', '-h', '127.0.0.1', '-p', str(self.port), '-U', 'postgres',
             '-qAtX'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lock = threading.Lock()
        self.ask('CREATE EXTENSION pg_stat_statements')

    def run(self, program, *more):
        command = [self.programs / program, *map(str, more)]
        if os.getuid() == 0:
            command = ['runuser', '-u', self.user, '--', *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.dir)

    def ask(self, statement):
        with self.lock:
            self.psql.stdin.write(f"{statement};\nSELECT 'done';\n")
            lines = iter(self.psql.stdout.readline, 'done\n')
            return [line.rstrip('\n').split('|') for line in lines]

    def stop(self):
        self.psql.terminate()
        self.run('pg_ctl', *self.control, '-m', 'immediate', 'stop')
        shutil.rmtree(self.dir, ignore_errors=True)


class Gateway:
    def __init__(self, binary, directory, url):
        directory.mkdir()
        self.port = free_port()
        (directory / 'routing.yaml').write_text(json.dumps(ROUTING))
        (directory / 'server.yaml').write_text(json.dumps({
            'listeners': [{'address': f'127.0.0.1:{self.port}'}],
            'data_dir': str(directory / 'data'), 'threads': 1,
            'metrics': {'address': f'127.0.0.1:{free_port()}'},
            'routing': {'file': str(directory / 'routing.yaml')}, 'store': {'url': url}}))
        env = {'PATH': os.environ['PATH'], 'HOME': str(directory), 'ADMIN_API_KEY': ADMIN,
               'REROUTER_MASTER_KEY': 'MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY='}
        self.log = directory / 'log'
        self.process = subprocess.Popen(
            [binary, 'serve', '--config', directory / 'server.yaml'], env=env,
            stdout=open(self.log, 'w'), stderr=subprocess.STDOUT)

    def wait(self):
        for _ in range(1200):
            try:
                return socket.create_connection(('127.0.0.1', self.port)).close()
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        raise SystemExit(self.log.read_text()[-2000:])

    def call(self, method, path, key, body=None):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=30)
        try:
            connection.request(method, path, body, {
                'authorization': f'Bearer {key}', 'content-type': 'application/json'})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


# The statements of this bench are left out. `wake` are notifications.
COUNTED = """SELECT coalesce(sum(calls), 0), coalesce(sum(rows), 0),
    coalesce(sum(calls) FILTER (WHERE query LIKE '%pg_notify%'), 0)
    FROM pg_stat_statements JOIN pg_database ON oid = dbid WHERE datname = '{}'"""
HELD = "FROM pg_stat_activity WHERE datname = '{}'"


def measure(postgres, database, gateways, seconds):
    """Per gateway and second: statements, rows, wake-ups; samples that wait, most connections."""
    postgres.ask('SELECT pg_stat_statements_reset()')
    waits, most, looks, until = 0, 0, 0, time.monotonic() + seconds
    while time.monotonic() < until:
        found = postgres.ask("SELECT count(*) FILTER (WHERE wait_event_type = 'Lock'), count(*) "
                             + HELD.format(database))[0]
        waits, most, looks = waits + int(found[0]), max(most, int(found[1])), looks + 1
        time.sleep(0.02)
    statements, rows, told = map(float, postgres.ask(COUNTED.format(database))[0])
    each = len(gateways) * seconds
    return statements / each, rows / each, told * len(gateways) / each, waits / looks, most


def load(gateways, stopping, took, counts):
    """Requests of keys with budgets at all gateways, and changes of other keys at each in turn."""
    def key(gateway, limits):
        status, made = gateway.call('POST', '/v1/router/keys', ADMIN,
                                    json.dumps({'name': 'k', 'limits': limits}))
        return json.loads(made) if status == 201 else {}

    budget = {'budget': {'usd': 100, 'per': 'month'}}
    keys = [key(gateways[at % len(gateways)], budget)['key'] for at in range(KEYS)]

    def ask(gateway):
        for at in itertools.count():
            if stopping.wait(1 / RATE):
                return
            status, _ = gateway.call('POST', '/v1/chat/completions', keys[at % KEYS], CHAT)
            counts[status] = counts.get(status, 0) + 1

    def change():
        for gateway in itertools.cycle(gateways):
            if stopping.wait(0.25):
                return
            made = key(gateway, {})
            began = time.perf_counter()
            status, _ = gateway.call('DELETE', f'/v1/router/keys/{made["id"]}', ADMIN)
            took.append((time.perf_counter() - began) * 1e3)
            counts[status] = counts.get(status, 0) + 1

    threads = [threading.Thread(target=ask, args=(gateway,)) for gateway in gateways]
    threads += [threading.Thread(target=change)]
    for thread in threads:
        thread.start()
    return threads


def fleet(postgres, binary, number):
    database = f'fleet_{number}'
    postgres.ask(f'CREATE DATABASE {database} TEMPLATE template0')
    directory = Path(tempfile.mkdtemp())
    url = f'postgres://postgres@127.0.0.1:{postgres.port}/{database}'
    gateways = []
    try:
        for at in range(number):
            gateways.append(Gateway(binary, directory / str(at), url))
            gateways[-1].wait()
        time.sleep(5)
        show(number, 'rest', measure(postgres, database, gateways, SECONDS))
        stopping, took, counts = threading.Event(), [], {}
        threads = load(gateways, stopping, took, counts)
        time.sleep(3)
        figures = measure(postgres, database, gateways, SECONDS)
        stopping.set()
        for thread in threads:
            thread.join()
        took.sort()
        show(number, 'load', figures, f'{took[len(took) // 2]:7.0f} {took[-1]:7.0f}  {counts}')
    finally:
        for gateway in gateways:
            gateway.process.terminate()
        for gateway in gateways:
            gateway.process.wait()
        shutil.rmtree(directory, ignore_errors=True)
        postgres.ask(f'DROP DATABASE {database} WITH (FORCE)')


def show(number, what, figures, more=''):
    statements, rows, wakes, waits, most = figures
    print(f'{number:8} {what:5} {statements:12.1f} {rows:8.1f} {wakes:9.1f} {waits:6.2f} '
          f'{most:12} {more}', flush=True)


def main():
    numbers = [int(one) for one in (sys.argv[2:] or ['3,10,20,40'])[0].split(',')]
    postgres = Postgres()
    print('gateways       statements/s   rows/s wake-ups/s  waits  connections  '
          'DELETE p50, most ms')
    try:
        for number in numbers:
            fleet(postgres, sys.argv[1], number)
    finally:
        postgres.stop()


if __name__ == '__main__':
    main()
