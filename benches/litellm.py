#!/usr/bin/env python3
"""The attacks of budgets.py on LiteLLM with keys, which need PostgreSQL: benches/litellm.py [WORD]

It needs what benches/run budgets --litellm installs. Each of two settings has a new database.
"""
import asyncio
import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import budgets

VENV, PRISMA = (Path('.test/rivals').resolve() / name for name in ('litellm-keys', 'prisma'))
ENGINE = str(Path(__file__).with_name('litellm-engine.js').resolve())
POSTGRES = max(Path('/usr/lib/postgresql').glob('*/bin'))


def run(*command, **more):
    subprocess.run(command, check=True, capture_output=True, **more)


class LiteLLM(budgets.Rerouter):
    health = '/health/readiness'

    def __init__(self, provider_port, settings):
        self.dir, self.port = Path(tempfile.mkdtemp()), budgets.free_port()
        self.command = f'litellm --config config.yaml --host 127.0.0.1 --port {self.port}'.split()
        self.env = {
            'PATH': f'{VENV}/bin:{os.environ["PATH"]}', 'HOME': str(self.dir),
            'DATABASE_URL': self.database(), 'DISABLE_SCHEMA_UPDATE': 'True',
            'LITELLM_LOCAL_MODEL_COST_MAP': 'True', 'PRISMA_NPM': str(PRISMA),
            **{f'PRISMA_{what}': ENGINE for what in (
                'QUERY_ENGINE_BINARY', 'SCHEMA_ENGINE_BINARY', 'QUERY_ENGINE_LIBRARY')}}
        extras = next(VENV.glob('lib/*/*/litellm_proxy_extras'))
        for migration in sorted(extras.glob('migrations/*/migration.sql')):
            run('psql', '-qv', 'ON_ERROR_STOP=1', '-f', migration, self.env['DATABASE_URL'])
        schema = self.dir / 'schema.prisma'
        schema.write_text(re.sub('.*binaryTargets.*', '', (extras / 'schema.prisma').read_text()))
        prisma = PRISMA / 'node_modules/prisma/build/index.js'
        run('node', prisma, 'generate', '--schema', schema, env=self.env)
        prices = {f'{side}_cost_per_token': budgets.USD_PER_TOKEN for side in ('input', 'output')}
        model = {'model': 'openai/m', 'api_key': 'k',
                 'api_base': f'http://127.0.0.1:{provider_port}/v1'}
        (self.dir / 'config.yaml').write_text(json.dumps({
            'model_list': [{'model_name': 'auto', 'litellm_params': model, 'model_info': prices}],
            'general_settings': {'master_key': budgets.ADMIN, **settings}}))
        self.start()

    def database(self):
        port, data = budgets.free_port(), Path(tempfile.mkdtemp())
        user = {'user': 'postgres', 'cwd': '/'} if os.getuid() == 0 else {}
        shutil.chown(data, user.get('user', os.getuid()))
        run(POSTGRES / 'initdb', '-D', data, '-U', 'postgres', '-A', 'trust', **user)
        options = f'-p {port} -k {data} -c listen_addresses=127.0.0.1'
        control = POSTGRES / 'pg_ctl', '-D', data, '-w', '-l', data / 'log', '-o', options
        run(*control, 'start', **user)
        atexit.register(lambda: run(*control, '-m', 'fast', 'stop', **user))
        return f'postgresql://postgres@127.0.0.1:{port}/postgres'

    def key(self):
        return [self.call('POST', '/key/generate', {'max_budget': budgets.BUDGET})['key']] * 2

    def budget(self, key):
        time.sleep(20)  # What was spent is written every ten seconds or so.
        spent = self.call('GET', f'/key/info?key={key}')['info']['spend']
        return {'spent_usd': spent, 'remaining_usd': budgets.BUDGET - spent}


for settings in {}, {'fail_closed_budget_enforcement': True}:
    print('LiteLLM, general_settings', json.dumps(settings), flush=True)
    port = budgets.free_port()
    asyncio.run(budgets.against(lambda: LiteLLM(port, settings), port, ''.join(sys.argv[1:])))
