#!/usr/bin/env python3
"""Sets what LiteLLM sends a provider for recorded chat requests beside what the gateway sends.

    benches/litellm_requests.py BINARY [--data FILE]... [--anthropic MODEL] [--gemini MODEL]
                                [--all] [--bodies PATH]

The requests are the recorded ones, and litellm_requests.jsonl: what clients often send that no
recording has. LiteLLM is the library, in this process, with `drop_params`, as its proxy is mostly
run. A provider on loopback keeps the bodies of both. What means the same is made the same before
the comparison: the spelling of members, texts in lists, ids of calls, turns that follow one
another, defaults. `--all` lists the paths of each request; `--bodies` prints both bodies where a
path has that word.

A path is marked `+` if only the gateway sends it, `-` if only LiteLLM does, `~` if both do. KINDS
has what was judged by hand of each kind of difference; what it does not know is "not judged".
"""
import argparse
import http.server
import json
import os
import re
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from pathlib import Path

from budgets import ADMIN, Rerouter, free_port

sys.path.pop(0)  # litellm.py of this directory is a bench.
os.environ.setdefault('LITELLM_LOCAL_MODEL_COST_MAP', 'True')
import litellm  # noqa: E402

MODELS = {'anthropic': 'claude-sonnet-4-6', 'gemini': 'gemini-2.5-flash'}
ANSWERS = {
    'anthropic': {
        'id': 'm', 'type': 'message', 'role': 'assistant', 'model': 'm', 'stop_reason': 'end_turn',
        'content': [{'type': 'text', 'text': 'ok'}], 'stop_sequence': None,
        'usage': {'input_tokens': 1, 'output_tokens': 1}},
    'gemini': {
        'candidates': [{'index': 0, 'finishReason': 'STOP',
                        'content': {'role': 'model', 'parts': [{'text': 'ok'}]}}],
        'usageMetadata': {'promptTokenCount': 1, 'candidatesTokenCount': 1, 'totalTokenCount': 2}}}
# Kinds of differences: the paths, the gateway's request beside LiteLLM's, and why.
KINDS = [(re.compile(paths), verdict, why) for paths, verdict, why in [
    (r'ImageFetchError', 'neutral', 'LiteLLM fetches images itself; the gateway has Gemini do it'),
    (r'LiteLLM raises', 'better', 'LiteLLM raises on a request that the provider can serve'),
    (r'both refuse', 'neutral', 'neither sends a tool that only another router has'),
    (r'gemini .*refuses: .(n|logprobs)\W', 'worse', 'Gemini has candidateCount and logprobs'),
    (r'rerouter refuses', 'better', 'refused by name; LiteLLM asks without that part, unsaid'),
    (r'functionDeclarations\[\]\.schema|input_schema', 'better',
     'schemas of tools keep their keywords'),
    (r'functionCall\.id|functionResponse\.id', 'neutral', 'ids of calls; order tells, too'),
    (r'functionResponse\.response', 'neutral',
     'the result as text under `output`; LiteLLM: under `content`, JSON objects as they are'),
    (r'thoughtSignature', 'neutral', "the signature that Gemini 3 wants with others' calls"),
    (r'anthropic - (clear_thinking|reasoning|reasoning_format|models|provider|transforms|preset|'
     r'thinking\.clear_thinking|safety_settings)$', 'better',
     'members of other providers, which Anthropic answers with 400'),
    (r'anthropic [-~] temperature', 'better', 'temperature, where Anthropic takes no such'),
    (r'thinking\.budget_tokens', 'neutral', 'a budget becomes an effort, as newer models want'),
    (r'anthropic . (thinking|output_config)(\.type|\.display)?$', 'better',
     'thinking as the model takes it: adaptive, shown, disabled, none with a forced tool'),
    (r'output_config\.format\.schema', 'neutral',
     'bounds of an output in other words; references stay, which Anthropic takes'),
    (r'gemini - .*thinkingLevel', 'worse',
     'Gemini 3 wants a level; some of its models refuse a budget of 0'),
    (r'gemini \+ .*thinkingBudget', 'neutral', 'a budget of -1 is the default'),
    (r'gemini \+ .*\.(temperature|topP|presencePenalty|frequencyPenalty)$', 'neutral',
     'sampling, which newer models of Gemini ignore'),
    (r'anthropic ~ max_tokens', 'better', "the longest answer of the model; LiteLLM's is shorter"),
    (r'thinkingBudget|gemini \+ generationConfig$', 'better',
     "effort by Google's own budgets; OpenRouter's `reasoning` is read"),
    (r'includeThoughts', 'neutral', 'without thinking there is none to show'),
    (r'content\[\]\.title', 'better', 'the name of a file'),
    (r'gemini ~ tools$', 'better', "OpenRouter's web search is asked of Gemini"),
    (r'anthropic - tools$', 'neutral',
     "LiteLLM's dummy tool, where calls are in the history: Anthropic once wanted one"),
    (r'max_uses', 'neutral', 'LiteLLM makes a limit of searches of their size'),
    (r'eager_input_streaming', 'worse', 'Anthropic has it; dropped, and named'),
    (r'safetySettings', 'worse', "Gemini's own member in chat; dropped, and named"),
    (r'mediaResolution|gemini - generationConfig$', 'worse',
     '`detail` of an image is dropped, and named; LiteLLM sets the resolution of all'),
    (r'anthropic - service_tier', 'neutral', "`auto` is Anthropic's default"),
    (r'gemini - serviceTier', 'better', 'LiteLLM makes `auto` the dearer `priority`'),
    (r'anthropic ~ (messages\[\]\.content|system\.text)$', 'worse',
     'system text between turns goes to the front; `thinking_blocks` are dropped, and named'),
    (r'anthropic ~ messages$', 'better', 'LiteLLM fills blank turns with words of its own'),
    (r'gemini ~ contents\[\]\.parts$', 'neutral',
     "another model's thinking is dropped, and named; LiteLLM sends it unsigned"),
    (r'gemini [~-] (contents(\[\]\.parts\[\]\.text)?|systemInstruction)$', 'neutral',
     'blank turns are left out; a system text alone is the turn, where LiteLLM adds "."'),
]]
HERE = Path(__file__).parent
DATA = [HERE.parent / 'tests/data/recorded_chat.jsonl', HERE / 'litellm_requests.jsonl']


class Provider(http.server.BaseHTTPRequestHandler):
    """Keeps the last body and answers with a short text."""
    body = None

    def do_POST(self):
        Provider.body = json.loads(self.rfile.read(int(self.headers['content-length'])))
        kind = 'gemini' if 'enerateContent' in self.path else 'anthropic'
        Provider.body['stream'] = 'stream' in self.path or Provider.body.get('stream', False)
        text = json.dumps(ANSWERS[kind]).encode()
        self.send_response(200)
        self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Gateway(Rerouter):
    def __init__(self, binary, provider_port):
        self.dir, self.port = Path(tempfile.mkdtemp()), free_port()
        # With the preset count its shipped prices and abilities.
        (self.dir / 'routing.yaml').write_text(json.dumps({
            'providers': {kind: {'preset': kind, 'api_key': '${P_API_KEY}',
                                 'base_url': base(kind, provider_port)} for kind in MODELS},
            'recipes': {kind: {'rules': [{'name': 'd', 'targets': [{'target': f'{kind}/{model}'}]}]}
                        for kind, model in MODELS.items()},
            'aliases': {kind: kind for kind in MODELS}}))
        (self.dir / 'server.yaml').write_text(json.dumps({
            'listeners': [{'address': f'127.0.0.1:{self.port}'}],
            'metrics': {'address': f'127.0.0.1:{free_port()}'},
            'data_dir': str(self.dir / 'data'),
            'routing': {'file': str(self.dir / 'routing.yaml')}}))
        self.command = [binary, 'serve', '--config', self.dir / 'server.yaml']
        self.env = {'PATH': '/usr/bin:/bin', 'ADMIN_API_KEY': ADMIN, 'P_API_KEY': 'k',
                    'HOME': str(self.dir)}
        self.start()
        self.client = self.call('POST', '/v1/router/keys', {'name': 'k'})['key']

    def sends(self, kind, request):
        """The provider's body, or the refusal; and the members that are named as dropped."""
        asked = urllib.request.Request(
            f'http://127.0.0.1:{self.port}/v1/chat/completions',
            json.dumps(request | {'model': kind}).encode(),
            {'authorization': f'Bearer {self.client}', 'content-type': 'application/json'})
        Provider.body = None
        try:
            with urllib.request.urlopen(asked) as answer:
                answer.read()
                return Provider.body, answer.headers['x-rerouter-dropped'] or ''
        except urllib.error.HTTPError as refusal:
            refused = json.loads(refusal.read())['error']
            return Provider.body or refused['message'][:130], ''


def base(kind, port):
    return f'http://127.0.0.1:{port}' + ('/v1beta' if kind == 'gemini' else '')


def litellm_sends(kind, request, port):
    request = json.loads(json.dumps(request)) | {'model': f'{kind}/{MODELS[kind]}'}
    Provider.body = None
    try:
        answer = litellm.completion(**request, api_base=base(kind, port), api_key='k',
                                    drop_params=True, num_retries=0)
        if request.get('stream'):
            list(answer)
    except Exception as error:  # Of whatever type, it is told as the result.
        why = f'{type(error).__name__} {error}'.partition('Traceback')[0]
        return Provider.body or re.sub(r'\s+', ' ', why)[:130]
    return Provider.body


def camel(value):
    """Members in the camel case of Gemini, but for what users name themselves."""
    if isinstance(value, list):
        return [camel(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {re.sub('_(.)', lambda found: found[1].upper(), name):
            part if name in ('args', 'response', 'schema') else camel(part)
            for name, part in value.items()}


def schema(value, key=None):
    """A schema with types in small letters. LiteLLM writes them for Gemini in capitals."""
    if isinstance(value, list):
        return [schema(part, key) for part in value]
    if isinstance(value, dict):
        return {name: schema(part, name) for name, part in value.items()}
    return value.lower() if key == 'type' and isinstance(value, str) else value


def parts_of(content):
    return [{'type': 'text', 'text': content}] if isinstance(content, str) else content or []


def joined(turns, member):
    """Turns with neighbours of one role in one, and their texts without blank ends."""
    result = []
    for turn in turns:
        role = 'user' if turn.get('role') in (None, 'function') else turn['role']
        parts = [part | {'text': part['text'].strip()} if isinstance(part.get('text'), str)
                 else part for part in parts_of(turn.get(member)) if part.get('text') != '']
        if result and result[-1]['role'] == role:
            result[-1][member] += parts
        else:
            result.append({'role': role, member: parts})
    return result


def text_of(system):
    return '\n'.join(part['text'].strip() for part in parts_of(system)).replace('\n\n', '\n')


def anthropic_form(body):
    body.pop('model')
    marks = [part.get('cache_control') for part in parts_of(body.get('system'))]
    if 'system' in body:
        body['system'] = {'text': text_of(body['system']), 'cache': list(filter(None, marks))}
    body['messages'] = joined(body['messages'], 'content')
    ids = {}
    for part in (part for turn in body['messages'] for part in turn['content']):
        for member in 'id', 'tool_use_id':
            if member in part:
                part[member] = ids.setdefault(part[member], len(ids))
        if part['type'] == 'tool_result':
            part['content'] = parts_of(part.get('content'))
    # The older name of output_config.format.
    if 'output_format' in body:
        body.setdefault('output_config', {})['format'] = body.pop('output_format')
    if not body.get('tools'):
        body.pop('tools', None)
    for tool in body.get('tools', []):
        if tool.get('type') == 'custom':
            del tool['type']
    if body.get('tool_choice') == {'type': 'auto'}:
        del body['tool_choice']
    return body


def gemini_form(body):
    body = camel(body)
    if 'systemInstruction' in body:
        body['systemInstruction'] = text_of(body['systemInstruction']['parts'])
    body['contents'] = joined(body['contents'], 'parts')
    for tool in body.get('tools', []):
        for function in tool.get('functionDeclarations', []):
            for name in 'parametersJsonSchema', 'parameters':
                if name in function:
                    function['schema'] = schema(function.pop(name))
    settings = body.get('generationConfig', {})
    for name in 'responseJsonSchema', 'responseSchema':
        if name in settings:
            settings['schema'] = schema(settings.pop(name))
    if settings.get('candidateCount') == 1:
        del settings['candidateCount']
    if not settings:
        body.pop('generationConfig', None)
    choice = body.get('toolConfig', {}).get('functionCallingConfig', {})
    if choice == {'mode': 'AUTO'}:
        del body['toolConfig']
    return body


def differences(ours, theirs, path=''):
    """Marked paths without the indexes of lists, each with both values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours | theirs:
            under = f'{path}.{name}' if path else name
            if name not in theirs:
                yield f'+ {under}', ours[name], None
            elif name not in ours:
                yield f'- {under}', None, theirs[name]
            else:
                yield from differences(ours[name], theirs[name], under)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs):
            yield from differences(one, other, f'{path}[]')
    elif ours != theirs:
        yield f'~ {path}', ours, theirs


def compare(kind, ours, theirs):
    """What differs: paths with values, or who sends nothing."""
    if isinstance(ours, str) or isinstance(theirs, str):
        both = isinstance(ours, str) and isinstance(theirs, str)
        who = 'both refuse' if both else 'rerouter refuses' if isinstance(ours, str) \
            else 'LiteLLM raises'
        why = ours if isinstance(ours, str) else re.sub('.*Exception - |.*litellm[.]', '', theirs)
        return [(f'! {who}: {why[:60]}', ours, theirs)]
    form = {'anthropic': anthropic_form, 'gemini': gemini_form}[kind]
    return list(differences(form(ours), form(theirs)))


def short(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 150 else text[:150] + ' …'


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('binary')
    arguments.add_argument('--data', action='append', metavar='FILE')
    for kind, model in MODELS.items():
        arguments.add_argument(f'--{kind}', default=model, metavar='MODEL')
    arguments.add_argument('--all', action='store_true')
    arguments.add_argument('--bodies')
    given = arguments.parse_args()
    MODELS.update({kind: getattr(given, kind) for kind in MODELS})
    provider = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    litellm.suppress_debug_info = True
    gateway = Gateway(Path(given.binary).resolve(), provider.server_port)
    try:
        for path in map(Path, given.data or DATA):
            rows = [row for row in map(json.loads, path.open()) if row.get('kind') == 'chat']
            for kind in MODELS:
                print(f'\n{path.name} to {kind}/{MODELS[kind]}')
                tell(kind, rows, gateway, provider.server_port, given)
    finally:
        gateway.kill()


def judged(kind, path):
    found = (row for row in KINDS if row[0].search(f'{kind} {path}'))
    return next(found, (None, 'not judged', path))[1:]


def verdict(found):
    """That of a request, whose differences have these."""
    found = set(found) - {'neutral'}
    return 'neither' if not found else found.pop() if len(found) == 1 else ' and '.join(
        sorted(found))


def tell(kind, rows, gateway, port, given):
    kinds, paths, example = defaultdict(set), defaultdict(set), {}
    requests, dropped = Counter(), Counter()
    for row in rows:
        ours, lost = gateway.sends(kind, row['request'])
        theirs = litellm_sends(kind, row['request'], port)
        bodies = json.dumps([ours, theirs], indent=1, ensure_ascii=False)
        found = compare(kind, ours, theirs)
        dropped.update(filter(None, lost.split(', ')))
        requests[verdict(judged(kind, path)[0] for path, *_ in found) if found else 'equal'] += 1
        for path, *values in found:
            kinds[judged(kind, path)].add(row['id'])
            paths[path].add(row['id'])
            example.setdefault(path, (row['id'], *map(short, values)))
        if given.all:
            print(row['id'], ', '.join(sorted({path for path, *_ in found})) or 'same', lost)
        if given.bodies and any(given.bodies in path for path, *_ in found):
            print(row['id'], bodies)
    print(f'{len(rows)} requests:', ', '.join(
        f'{count} {name}' for name, count in requests.most_common()))
    print('\nrequests | the gateway is | kind of difference')
    for (name, why), ids in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f'{len(ids)} | {name} | {why}')
    print('\nrequests | path | the first one | rerouter | LiteLLM')
    for path, ids in sorted(paths.items(), key=lambda item: -len(item[1])):
        print(' | '.join([str(len(ids)), path, *example[path]]))
    print('named as dropped:', ', '.join(f'{count} {name}' for name, count in
                                         dropped.most_common()) or 'nothing')


if __name__ == '__main__':
    main()
