#!/usr/bin/env python3
"""Prices recorded usage bodies of real providers, and tells which cost something else than billed.

    benches/usages.py BINARY [--data FILE_OR_URL] [--prices FILE_OR_URL] [--base-prices] [--all]

The bodies are those of the tests of genai-prices, each with its price there on the day DATE. Where
a body tells its own cost (OpenRouter), that was billed. A provider of our own answers with each
body: whole and as a stream, to a client of its own dialect and to one of another, which is
translated. The routing document has the prices of the same collection. `--base-prices` leaves out
all but the prices of input, output and cached input: what the bodies cost without the others.
`--all` lists each case that is off.
"""
import argparse
import asyncio
import http.client
import importlib.machinery
import importlib.util
import json
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from budgets import Rerouter, free_port

PUBLIC = 'https://raw.githubusercontent.com/pydantic/genai-prices/main/'
# The moment whose prices the data set has, in UTC.
DATE, TIME = '2025-11-06', '12:00'
TOLERANCE = 0.001
# Who has the price of a chat completion, the first one that has it, unless the file names another.
CHAT = ['openrouter', 'groq', 'mistral', 'openai', 'deepseek', 'zhipuai', 'cerebras', 'google']
# Counts whose price all documents have, and those of text, which has no other price.
BASE = {'input_tokens', 'output_tokens', 'cache_read_tokens', 'output_reasoning_tokens',
        'input_text_tokens', 'output_text_tokens', 'cache_text_read_tokens'}
# Ways: the client's endpoint, and whether it asks for a stream. The first two are native, but for
# Gemini, which has no clients of its own here.
WAYS = {'chat': ['chat', 'messages'], 'messages': ['messages', 'chat'],
        'responses': ['responses', 'messages'], 'gemini': ['chat', 'messages']}
PATHS = {'chat': '/v1/chat/completions', 'messages': '/v1/messages', 'responses': '/v1/responses'}


def price_script():
    """The module that makes the price list: it reads the same collection."""
    path = str(Path(__file__).parent.parent / '.ci/prices')
    loader = importlib.machinery.SourceFileLoader('prices', path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('prices', loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class Case:
    def __init__(self, record):
        body = record['body']
        self.file, self.model = body['file'], record.get('model')
        self.usage = body.get('usage') or body.get('usageMetadata') or {}
        self.shape = ('gemini' if 'usageMetadata' in body else
                      'responses' if 'input_tokens_details' in self.usage else
                      'messages' if 'input_tokens' in self.usage else
                      'chat' if 'prompt_tokens' in self.usage else None)
        self.provider, self.billed, self.counts = None, None, {}
        priced = [(row, group['usage']) for group in record['extracted']
                  for row in group['extractors'] if 'input_price' in row]
        row, counts = min(priced, key=lambda pair: self.rank(pair[0]), default=(None, {}))
        if row and self.rank(row) < 99:
            self.provider, self.counts = row['provider_id'], counts
            self.billed = float(row.get('total_price') or 0) or (
                float(row['input_price']) + float(row['output_price']))
        if 'cost' in self.usage:
            details = self.usage.get('cost_details') or {}
            upstream = details.get('upstream_inference_cost') if self.usage.get('is_byok') else 0
            self.provider, self.told = 'openrouter', True
            self.billed = self.usage['cost'] + (upstream or 0)
        else:
            self.told = False

    def rank(self, row):
        provider, flavor = row['provider_id'], row['api_flavor']
        if self.shape == 'chat':
            if flavor not in ('chat', 'default', 'embeddings') or provider == 'azure':
                return 99
            named = any(part in self.file for part in {provider, provider.split('_')[-1]})
            order = CHAT.index(provider) if provider in CHAT else len(CHAT)
            return order - (50 if named else 0) + (0.5 if flavor == 'embeddings' else 0)
        wanted = {'gemini': ['google'], 'messages': ['anthropic'], 'responses': ['openai', 'aws']}
        wanted = wanted.get(self.shape, [])
        return wanted.index(provider) if provider in wanted else 99

    def bill_unread(self, prices):
        """Adds what the provider bills and the data set doesn't read of the body."""
        if self.told:
            return
        if (self.shape, self.provider) == ('chat', 'google'):
            # Google's chat completions tell thinking in the total alone.
            thinking = self.usage['total_tokens'] - self.usage['prompt_tokens'] \
                - self.usage['completion_tokens']
            self.billed += thinking * prices['output_per_mtok'] / 1e6
        if (self.shape, self.provider) == ('responses', 'aws'):
            # AWS's responses are read as messages there, without their cache writes.
            written = self.usage['input_tokens_details'].get('cache_write_tokens', 0)
            if written:
                self.counts = {**self.counts, 'cache_write_tokens': written}
                more = prices['cache_write_per_mtok'] - prices['input_per_mtok']
                self.billed += written * more / 1e6

    def cause(self):
        """The kinds that the three base prices don't price."""
        if self.told:
            return 'the cost told'
        kinds = [kind for kind, count in self.counts.items() if count and kind not in BASE]
        if any(self.counts.get('input_tokens', 0) > tier['above'] for tier in self.tiers):
            kinds.append('tier')
        return ' + '.join(sorted(kinds)) or 'none of these'


class Provider:
    """Answers in each dialect with the usage of the case that the model names."""

    def __init__(self, cases):
        self.cases = cases

    async def serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b'\r\n\r\n'):
                path = head.split(b' ')[1].decode()
                length = next(int(line[15:]) for line in head.split(b'\r\n')
                              if line.lower().startswith(b'content-length:'))
                asked = json.loads(await reader.readexactly(length))
                shape, _, rest = path.strip('/').partition('/')
                if shape == 'gemini':
                    model, _, method = rest.rpartition('/')[2].partition(':')
                    streams = method.startswith('stream')
                else:
                    model, streams = asked['model'], asked.get('stream')
                usage = self.cases[int(model[1:])].usage
                make = globals()[f'{shape}_answer']
                self.answer(writer, make(model, usage, streams), streams)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        writer.close()

    @staticmethod
    def answer(writer, made, streams):
        if streams:
            body, kind = b''.join(made), b'text/event-stream'
        else:
            body, kind = json.dumps(made).encode(), b'application/json'
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n'
                     % (kind, len(body)) + body)


def event(value, name=None):
    return (f'event: {name}\n' if name else '').encode() + \
        b'data: ' + json.dumps(value).encode() + b'\n\n'


def chat_answer(model, usage, streams):
    message = {'role': 'assistant', 'content': 'word'}
    if not streams:
        return {'id': 'x', 'object': 'chat.completion', 'created': 1, 'model': model,
                'choices': [{'index': 0, 'message': message, 'finish_reason': 'stop'}],
                'usage': usage}
    chunk = {'id': 'x', 'object': 'chat.completion.chunk', 'created': 1, 'model': model}
    return [event({**chunk, 'choices': [{'index': 0, 'delta': message, 'finish_reason': None}]}),
            event({**chunk, 'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'stop'}]}),
            event({**chunk, 'choices': [], 'usage': usage}), b'data: [DONE]\n\n']


def messages_answer(model, usage, streams):
    message = {'id': 'msg_x', 'type': 'message', 'role': 'assistant', 'model': model,
               'content': [], 'stop_reason': None, 'stop_sequence': None}
    if not streams:
        return {**message, 'content': [{'type': 'text', 'text': 'word'}],
                'stop_reason': 'end_turn', 'usage': usage}
    # Both ends tell the prompt. Only the first tells its parts, only the last what tools did.
    first = {name: value for name, value in usage.items()
             if name not in ('server_tool_use', 'output_tokens_details')}
    last = {name: value for name, value in usage.items()
            if name.endswith('_tokens') or name in ('server_tool_use', 'output_tokens_details')}
    events = [
        {'type': 'message_start', 'message': {**message, 'usage': {**first, 'output_tokens': 1}}},
        {'type': 'content_block_start', 'index': 0, 'content_block': {'type': 'text', 'text': ''}},
        {'type': 'content_block_delta', 'index': 0,
         'delta': {'type': 'text_delta', 'text': 'word'}},
        {'type': 'content_block_stop', 'index': 0},
        {'type': 'message_delta', 'delta': {'stop_reason': 'end_turn', 'stop_sequence': None},
         'usage': last},
        {'type': 'message_stop'}]
    return [event(value, value['type']) for value in events]


def responses_answer(model, usage, streams):
    part = {'type': 'output_text', 'text': 'word', 'annotations': []}
    item = {'type': 'message', 'id': 'msg_x', 'role': 'assistant', 'status': 'completed',
            'content': [part]}
    whole = {'id': 'resp_x', 'object': 'response', 'created_at': 1, 'model': model,
             'status': 'completed', 'output': [item], 'usage': usage}
    if not streams:
        return whole
    at = {'item_id': 'msg_x', 'output_index': 0, 'content_index': 0}
    begun = {**whole, 'status': 'in_progress', 'output': [], 'usage': None}
    events = [
        {'type': 'response.created', 'response': begun},
        {'type': 'response.output_item.added', 'output_index': 0,
         'item': {**item, 'status': 'in_progress', 'content': []}},
        {'type': 'response.content_part.added', **at, 'part': {**part, 'text': ''}},
        {'type': 'response.output_text.delta', **at, 'delta': 'word'},
        {'type': 'response.output_text.done', **at, 'text': 'word'},
        {'type': 'response.content_part.done', **at, 'part': part},
        {'type': 'response.output_item.done', 'output_index': 0, 'item': item},
        {'type': 'response.completed', 'response': whole}]
    return [event({**value, 'sequence_number': number}, value['type'])
            for number, value in enumerate(events)]


def gemini_answer(model, usage, streams):
    def answer(text, usage, **end):
        content = {'role': 'model', 'parts': [{'text': text}]}
        return {'candidates': [{'content': content, 'index': 0, **end}], 'usageMetadata': usage,
                'modelVersion': model, 'responseId': 'x'}
    whole = answer('word', usage, finishReason='STOP')
    if not streams:
        return whole
    # The first event tells the prompt alone.
    first = {name: value for name, value in usage.items() if name.startswith('prompt')}
    first['totalTokenCount'] = usage.get('promptTokenCount', 0)
    return [event(answer('wo', first)),
            event(answer('rd', usage, finishReason='STOP'))]


class Gateway(Rerouter):
    def __init__(self, binary, provider_port, models):
        self.dir, self.port = Path(tempfile.mkdtemp()), free_port()

        def provider(shape, protocol, endpoint=None):
            row = {'protocol': protocol, 'api_key': '${P_API_KEY}',
                   'base_url': f'http://127.0.0.1:{provider_port}/{shape}'}
            return {**row, 'endpoints': [endpoint]} if endpoint else row
        (self.dir / 'routing.yaml').write_text(json.dumps({
            'prices': 'none',
            'providers': {'chat': provider('chat', 'openai', 'chat.completions'),
                          'responses': provider('responses', 'openai', 'responses'),
                          'messages': provider('messages', 'anthropic'),
                          'gemini': provider('gemini', 'gemini')},
            'models': models,
            'recipes': {'r': {'rules': [{'name': 'd', 'targets': [{'target': 'chat/none'}]}]}},
            'aliases': {'auto': 'r'}}))
        (self.dir / 'server.yaml').write_text(json.dumps({
            'listeners': [{'address': f'127.0.0.1:{self.port}'}],
            'data_dir': str(self.dir / 'data'),
            'metrics': {'address': f'127.0.0.1:{free_port()}'},
            'routing': {'file': str(self.dir / 'routing.yaml')}}))
        self.command = [binary, 'serve', '--config', self.dir / 'server.yaml']
        self.env = {'PATH': '/usr/bin:/bin', 'ADMIN_API_KEY': 'rtr_admin_' + '0' * 40,
                    'P_API_KEY': 'k', 'HOME': str(self.dir)}
        self.start()

    def costs(self, count):
        """Usage and cost of each capture, by model, endpoint and whether it is a stream."""
        until, found, after = time.monotonic() + 60, {}, ''
        while True:
            page = self.call('GET', f'/v1/router/replay?limit=100{after}')
            for row in filter(lambda row: row['decision'], page['data']):
                way = (row['decision']['model'], row['endpoint'], row['stream'])
                found[way] = (row['state'], row['usage'] or {}, row['cost_usd'])
            if page['has_more']:
                after = f'&after={page["next"]}'
            elif len(found) >= count or time.monotonic() > until:
                return found
            else:
                found, after = {}, ''
                time.sleep(1)


def asked(client, model, streams):
    message = {'role': 'user', 'content': 'hello'}
    body = {'model': model}
    if client == 'responses':
        body['input'] = [message]
    else:
        body['messages'] = [message]
    if client == 'messages':
        body['max_tokens'] = 100
    if streams:
        body['stream'] = True
        if client == 'chat':
            body['stream_options'] = {'include_usage': True}
    return body


LOCAL = threading.local()


def ask(port, key, client, model, streams):
    if not hasattr(LOCAL, 'connection'):
        LOCAL.connection = http.client.HTTPConnection('127.0.0.1', port, timeout=30)
    LOCAL.connection.request(
        'POST', PATHS[client], json.dumps(asked(client, model, streams)),
        {'authorization': f'Bearer {key}', 'content-type': 'application/json'})
    answer = LOCAL.connection.getresponse()
    text = answer.read()
    return answer.status if answer.status == 200 else f'{answer.status} {text[:200]}'


def read(source):
    if '://' in source:
        with urllib.request.urlopen(source) as answer:
            return json.load(answer)
    return json.loads(Path(source).read_bytes())


def tell(name, cases, costs, ways, lists):
    """One row of figures for each way, and the causes. Returns the bodies that are off."""
    all_off = set()
    for endpoint, streams, label in ways:
        off, lost, worst, sums, causes = [], 0, 0.0, [0.0, 0.0], Counter()
        misread = 0
        for case in cases:
            state, usage, cost = costs.get((case.name, endpoint, streams), ('lost', {}, None))
            lost += state != 'completed'
            prompt = case.counts.get('input_tokens')
            misread += prompt is not None and usage.get('prompt_tokens') != prompt
            sums[0] += case.billed
            sums[1] += cost or 0
            differs = abs((cost or 0) - case.billed)
            # Captures have nano-dollars, rounded up.
            if cost is None or differs > max(TOLERANCE * case.billed, 2e-9):
                off.append((case, cost))
                worst = max(worst, differs / case.billed if case.billed else 1.0)
                causes[case.cause()] += 1
        print(' | '.join(map(str, [
            name, label, len(cases), len(off), f'{worst:.1%}', f'{sums[0]:.6f}', f'{sums[1]:.6f}',
            misread, lost, ', '.join(f'{count} {cause}' for cause, count in causes.most_common())
        ])), flush=True)
        if lists:
            for case, cost in off:
                print(f'    {case.billed:.9f} {cost} {case.model} {json.dumps(case.usage)}')
        all_off.update(case.name for case, _ in off)
    return all_off


async def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('binary')
    arguments.add_argument('--data', default=PUBLIC + 'tests/dataset/usages.json')
    arguments.add_argument('--prices', default=PUBLIC + 'prices/new_data/v2/data.json')
    arguments.add_argument('--base-prices', action='store_true')
    arguments.add_argument('--all', action='store_true')
    given = arguments.parse_args()
    script = price_script()
    sources = script.Sources(script.data_of(given.prices), {}, DATE)
    cases = [case for case in map(Case, read(given.data)) if case.shape and
             case.billed is not None]
    models = {}
    for number, case in enumerate(cases):
        case.name = f'c{number}'
        prices = price_of(script, sources, case)
        case.tiers = prices.get('tiers', [])
        case.bill_unread(prices)
        if given.base_prices:
            prices = {key: prices[key] for key, _, _ in script.KINDS[:3] if key in prices}
        # A model is known by its entry.
        models[f'{case.shape}/{case.name}'] = prices or {'context': 10 ** 7}
    port = free_port()
    provider = Provider(cases)
    await asyncio.start_server(provider.serve, '127.0.0.1', port, backlog=1024)
    gateway = await asyncio.to_thread(Gateway, Path(given.binary).resolve(), port, models)
    try:
        await measure(gateway, cases, given.all)
    finally:
        gateway.kill()


def price_of(script, sources, case):
    """The prices of a case in the collection, those of a provider's models by another included."""
    provider = sources.providers[case.provider]
    for name in [case.provider, *(provider.get('fallback_model_providers') or [])]:
        for model in sources.providers[name]['models']:
            if case.model and script.matches(model['match'], case.model.lower()):
                # What is free, or no more than read, has no price there.
                free = {'input_per_mtok': 0, 'output_per_mtok': 0}
                return free | script.prices_of(at_that_time(model['prices']), False)
    return {}


def at_that_time(prices):
    """The prices in force, the last of several that are."""
    if isinstance(prices, dict):
        return prices
    now = prices[0]['prices']
    for entry in prices:
        constraint = entry.get('constraint') or {}
        since = constraint.get('start_date') or DATE
        start, end = (constraint.get(name) or '' for name in ('start_time', 'end_time'))
        by_hour = not start or (start <= TIME < end if start < end else TIME >= start or TIME < end)
        if since <= DATE and by_hour:
            now = entry['prices']
    return now


async def measure(gateway, cases, lists):
    key = gateway.call('POST', '/v1/router/keys', {'name': 'k'})['key']
    jobs = [(client, f'{case.shape}/{case.name}', streams) for case in cases
            for client in WAYS[case.shape] for streams in (False, True)]
    begun = time.monotonic()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(16) as pool:
        statuses = Counter(await asyncio.gather(
            *(loop.run_in_executor(pool, ask, gateway.port, key, *job) for job in jobs)))
    for status, count in statuses.most_common(5):
        print(f'{count} answers {status}')
    costs = await asyncio.to_thread(gateway.costs, len(jobs))
    print(f'{len(jobs)} requests, {time.monotonic() - begun:.0f} s')
    print('provider | client | bodies | off | worst | billed USD | here USD | prompts read'
          ' otherwise | not completed | what the bodies that are off have')
    off, groups = set(), {}
    for case in cases:
        groups.setdefault((case.shape, case.provider), []).append(case)
    for (shape, provider), group in sorted(groups.items()):
        ways = [({'chat': 'chat.completions'}.get(client, client), streams,
                 f'{client}{", stream" if streams else ""}')
                for client in WAYS[shape] for streams in (False, True)]
        off |= tell(f'{shape}, {provider}', group, costs, ways, lists)
    print(f'{len(cases)} bodies, {len(off)} of them off')


if __name__ == '__main__':
    asyncio.run(main())
