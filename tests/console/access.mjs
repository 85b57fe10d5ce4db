// Keys, users, agents, nodes, gateways, audit, playground: one scene a run, named by the test.
import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { assert, check, checkLooks, given, open, picture, scenario, signIn } from './lib.mjs';

const run = promisify(execFile);
const python = new URL('../../.test/venv/bin/python', import.meta.url).pathname;

/** A request outside the browser. */
const ask = (path, { key, method = 'GET', body, headers = {} } = {}) => fetch(given.url + path, {
  method,
  headers: { ...(key && { authorization: `Bearer ${key}` }), ...(body && { 'content-type': 'application/json' }), ...headers },
  body: body && JSON.stringify(body),
});

const chat = async (key, model = 'auto') => {
  const body = { model, messages: [{ role: 'user', content: 'Say a word.' }] };
  return (await ask('/v1/chat/completions', { key, method: 'POST', body })).status;
};

const press = (page, name) => page.getByRole('button', { name, exact: true }).click();
/** Presses a button that leads to a page, at the same address or another. */
const submit = async (page, name) => {
  const loaded = page.waitForEvent('load');
  await press(page, name);
  await loaded;
};
const secretOf = async (page) => {
  const secret = await page.locator('.secret code').textContent();
  assert.ok(!page.url().includes(secret), page.url());
  return secret;
};
/** What a list of facts says. */
const fact = (page, name) => page.locator(`dt:text-is("${name}") + dd`).first().textContent();
const heading = (page, name) => page.getByRole('heading', { level: 1, name }).waitFor();

async function keys(browser) {
  const page = await open(browser);
  await signIn(page, { to: '/console/keys' });
  await page.getByRole('link', { name: 'New key' }).click();
  const checked = await page.locator('input[name=scopes]:checked').evaluateAll((all) => all.map((one) => one.value));
  assert.deepEqual(checked, ['inference']);

  // What the API refuses stands at its field, and nothing that was written is lost.
  await page.getByLabel('Name', { exact: true }).fill('from the browser');
  await page.getByLabel('Requests a minute', { exact: true }).fill('many');
  await page.getByLabel('Budget in US dollars').fill('2');
  await page.getByLabel('Models', { exact: true }).fill('auto\nnone*');
  await page.getByLabel('Labels').fill('team=search');
  await press(page, 'Create key');
  await page.locator('.field .error').getByText('limits.rpm must be').waitFor();
  assert.equal(await page.getByLabel('Name', { exact: true }).inputValue(), 'from the browser');
  await check(page);
  await page.getByLabel('Requests a minute', { exact: true }).fill('50');

  // The same form twice is one key.
  const twice = await page.evaluate(async () => {
    const form = document.querySelector('form[action^="/console/keys?"]');
    const body = () => new URLSearchParams(new FormData(form));
    const sent = [await fetch(form.action, { method: 'POST', body: body() }), await fetch(form.action, { method: 'POST', body: body() })];
    return Promise.all(sent.map(async (answer) => {
      const parsed = new DOMParser().parseFromString(await answer.text(), 'text/html');
      return [answer.headers.get('cache-control'), parsed.querySelector('.secret code').textContent];
    }));
  });
  assert.deepEqual(twice[0], twice[1]);
  assert.equal(twice[0][0], 'no-store');
  await press(page, 'Create key');
  await heading(page, 'Key created');
  const secret = await secretOf(page);
  assert.equal(secret, twice[0][1]);
  assert.match(secret, /^rtr_[0-9A-Za-z]{36}$/);
  await check(page);
  await picture(page, 'console-key-created');
  assert.equal(await chat(secret), 200);
  assert.ok([403, 404].includes(await chat(secret, 'a/model')));

  // The snippets run as they stand.
  const snippet = (title) => page.locator('details.snippet', { has: page.locator(`summary:text-is("${title}")`) }).locator('pre').first().textContent();
  const curl = await snippet('curl');
  assert.ok(curl.includes(secret) && curl.includes(given.url), curl);
  assert.match((await run('bash', ['-ec', curl])).stdout, /"content":"well"/);
  const program = join(mkdtempSync(join(tmpdir(), 'snippet-')), 'client.py');
  writeFileSync(program, await snippet('OpenAI SDK, Python'));
  assert.match((await run(python, [program])).stdout, /well/);
  assert.match(await snippet('Claude Code'), new RegExp(`ANTHROPIC_AUTH_TOKEN=${secret}`));
  await page.locator('summary:text-is("Codex")').click();
  await check(page);

  // What remains; the page of the key never has the secret.
  await page.getByRole('link', { name: 'from the browser' }).click();
  await heading(page, 'from the browser');
  assert.ok(!(await page.content()).includes(secret));
  const one = page.url();
  await page.goBack({ waitUntil: 'commit' }).catch(() => {});
  // There is nothing to read while the browser is on its way.
  let kept = null;
  for (let times = 0; kept === null && times < 100; times += 1) {
    kept = await page.content().catch(() => page.waitForTimeout(100).then(() => null));
  }
  assert.ok(kept !== null && !kept.includes(secret), 'the browser kept the page');
  page.faults = page.faults.filter((fault) => !fault.includes('ERR_CACHE_MISS'));
  await page.goto(one);
  const left = page.getByRole('region', { name: 'Remaining limits' });
  assert.match(await left.textContent(), /Requests a minute\s*\d+ of 50/);
  assert.match(await left.textContent(), /\$1\.9\d+ of \$2\.0000 a month/);
  assert.equal(await fact(page, 'Labels'), 'team=search\n');
  await check(page);

  await page.getByLabel('Grace for the old secret').selectOption('86400');
  await press(page, 'Rotate');
  await heading(page, 'New secret');
  const second = await secretOf(page);
  assert.notEqual(second, secret);
  assert.deepEqual([await chat(secret), await chat(second)], [200, 200]);
  await page.goto(one);
  await page.getByLabel('Grace for the old secret').selectOption('0');
  await press(page, 'Rotate');
  const third = await secretOf(page);
  assert.deepEqual([await chat(secret), await chat(second), await chat(third)], [401, 401, 200]);

  await page.goto(one);
  await press(page, 'Disable');
  await page.locator('.badge', { hasText: 'inactive' }).waitFor();
  assert.equal(page.url(), one);
  assert.equal(await chat(third), 401);
  await press(page, 'Enable');
  await page.locator('.badge-ok', { hasText: 'active' }).waitFor();
  assert.equal(await chat(third), 200);

  await page.getByLabel('Requests a minute', { exact: true }).fill('2000000000');
  await press(page, 'Save');
  await page.locator('.field .error').getByText('limits.rpm must be').waitFor();
  assert.equal(await page.getByLabel('Requests a minute', { exact: true }).getAttribute('aria-invalid'), 'true');
  await check(page);
  await page.getByLabel('Requests a minute', { exact: true }).fill('40');
  await page.getByLabel('Budget in US dollars').fill('');
  await page.getByLabel('Labels').fill('');
  await page.getByLabel('Name', { exact: true }).fill('another name');
  await press(page, 'Save');
  await heading(page, 'another name');
  assert.equal(await fact(page, 'Limits'), '40 requests/min');

  await page.locator('summary', { hasText: 'Revoke' }).click();
  await press(page, 'Revoke this key');
  await page.locator('.badge-bad', { hasText: 'revoked' }).waitFor();
  assert.equal(await chat(third), 401);
  await check(page);
  await page.goto('/console/keys');
  assert.equal(await page.getByRole('link', { name: 'another name' }).count(), 0);
  await page.getByLabel('Status').selectOption('revoked');
  await press(page, 'Filter');
  await page.getByRole('link', { name: 'another name' }).waitFor();

  // Of PIN too, and its first call.
  await page.goto('/console/keys/new?interface=pin');
  await press(page, 'Create key');
  const pin = await secretOf(page);
  assert.equal((await ask('/v1/auth/me', { key: pin })).status, 200);
  const call = await page.locator('.snippet-code pre').textContent();
  assert.match((await run('bash', ['-ec', call])).stdout, /"role":"admin"/);
  await check(page);

  // Pages of a list, each key once; so the audit, with its filter.
  const paged = async (path) => {
    const seen = new Set();
    let pages = 1;
    await page.goto(path);
    for (; ; pages += 1) {
      for (const id of await page.locator('tbody a[href^="/console/keys/"]').evaluateAll((all) => all.map((a) => a.href))) {
        assert.ok(!seen.has(id), id);
        seen.add(id);
      }
      const next = page.getByRole('link', { name: 'Next' });
      if (await next.count() === 0) break;
      const to = await next.getAttribute('href');
      await next.click();
      await page.waitForURL((url) => url.pathname + url.search === to);
    }
    assert.ok(pages > 1, path);
    assert.ok(seen.size >= 25, `${path}: ${seen.size}`);
  };
  await paged('/console/keys');
  await paged('/console/audit?action=key.create');
  assert.match(page.url(), /action=key\.create&after=/);
  assert.deepEqual(new Set(await page.locator('tbody tr td:nth-child(2)').allTextContents()), new Set(['key.create']));
  await check(page);
  assert.deepEqual(page.faults, []);
}

async function people(browser) {
  const page = await open(browser);
  await signIn(page, { to: '/console/users' });
  await page.getByRole('link', { name: 'New user' }).click();
  await page.getByLabel('E-mail').fill('ann@example.com');
  await page.getByLabel('Password').fill('short');
  await press(page, 'Create user');
  await page.locator('.field .error').getByText('password must have').waitFor();
  assert.equal(await page.getByLabel('Password').inputValue(), '');
  await check(page);
  await page.getByLabel('Password').fill('correct horse');
  await page.getByLabel('Name', { exact: true }).fill('Ann');
  await press(page, 'Create user');
  await heading(page, 'ann@example.com');
  await check(page);
  const one = page.url(), id = await fact(page, 'Id');

  const ann = await open(browser);
  await signIn(ann, { email: 'ann@example.com', password: 'correct horse', to: '/console/keys' });
  const tabs = await ann.locator('header nav a').allTextContents();
  assert.deepEqual(tabs.filter((name) => ['Users', 'Nodes', 'Gateways', 'Audit', 'Routing'].includes(name)), []);
  await ann.getByText('No keys here.').waitFor();
  // Nor does she get by hand what no link leads to.
  for (const path of ['users', 'users/new', `users/${id}`, 'nodes', 'nodes/new', 'gateways', 'audit']) {
    const answer = await ann.goto(`/console/${path}`);
    assert.equal(answer.status(), 403, path);
    await ann.getByText('This is for admins.').waitFor();
  }
  assert.equal((await ann.goto(`/console/keys/${given.key}?interface=router`)).status(), 404);
  await ann.goto('/console/keys/new');
  assert.equal(await ann.getByLabel('Labels').count(), 0);
  const post = (path, form) => ann.evaluate(async ([path, form]) => {
    const body = new URLSearchParams(form);
    const answer = await fetch(path, { method: 'POST', body });
    return [answer.status, await answer.text()];
  }, [path, form]);
  for (const [path, form] of [
    ['/console/users', [['email', 'x@example.com'], ['password', 'correct horse'], ['role', 'admin']]],
    [`/console/users/${id}`, [['name', 'Ann'], ['role', 'admin']]],
    [`/console/users/${id}/password`, [['password', 'correct horse 2']]],
    ['/console/nodes', [['name', 'mine']]],
    ['/console/gateways/x/forget', []],
    ['/console/keys?interface=router', [['scopes', 'config']]],
    ['/console/keys?interface=router', [['scopes', 'inference'], ['labels', 'team=x']]],
    ['/console/keys?interface=router', [['scopes', 'inference'], ['owner', 'usr_admin']]],
  ]) {
    assert.equal((await post(path, form))[0], 403, `${path} ${form}`);
  }
  for (const action of ['', '/rotate', '/status', '/revoke']) {
    assert.equal((await post(`/console/keys/${given.key}${action}?interface=router`, [['status', 'inactive'], ['name', 'x']]))[0], 404, action);
  }
  await ann.goto('/console/keys/new');
  await press(ann, 'Create key');
  const key = await secretOf(ann);
  assert.equal(await chat(key), 200);
  assert.deepEqual(ann.faults, []);

  // Disabled: out at the next click, and the key is dead.
  await page.goto(one);
  await page.locator('summary', { hasText: 'Disable' }).click();
  await press(page, 'Disable this user');
  await page.locator('.badge-bad', { hasText: 'disabled' }).waitFor();
  assert.equal(await chat(key), 401);
  await ann.getByRole('link', { name: 'Playground' }).click();
  await ann.waitForURL('**/console/sign-in?**');
  await press(page, 'Enable this user');
  await page.locator('.badge-ok', { hasText: 'enabled' }).waitFor();
  assert.equal(await chat(key), 200);
  await signIn(ann, { email: 'ann@example.com', password: 'correct horse', to: '/console/keys' });

  await page.getByLabel('New password').fill('battery staple');
  await submit(page, 'Set password');
  await ann.reload();
  assert.equal(new URL(ann.url()).pathname, '/console/sign-in');
  await signIn(ann, { email: 'ann@example.com', password: 'battery staple', to: '/console/keys' });

  // The last admin stays.
  await page.goto('/console/users');
  await page.getByLabel('Users').getByRole('link', { name: given.email }).click();
  await page.getByLabel('Role').selectOption('user');
  await press(page, 'Save');
  await page.getByRole('alert').getByText('admin').waitFor();
  await check(page);
  await page.goto(one);

  await page.getByLabel('Requests a minute', { exact: true }).fill('7');
  await page.getByLabel('Role').selectOption('admin');
  await press(page, 'Save');
  await page.getByText('7 requests/min').waitFor();
  await ann.goto('/console/users');
  await heading(ann, 'Users');
  // The audit has all of it, with links and filters.
  await ann.goto(`/console/audit?target=${id}`);
  const actions = await ann.locator('tbody tr td:nth-child(2)').allTextContents();
  for (const action of ['user.create', 'user.disable', 'user.update', 'password.change', 'session.create']) {
    assert.ok(actions.includes(action), `${action} is not in ${actions}`);
  }
  await check(ann);
  await ann.getByLabel('Action').selectOption('user.disable');
  await press(ann, 'Filter');
  await ann.waitForURL(/action=user.disable/);
  assert.equal(await ann.locator('tbody tr').count(), 1);
  await ann.locator(`tbody a[href="/console/users/${id}"]`).click();
  await heading(ann, 'ann@example.com');
  await ann.goto('/console/audit?action=key.create');
  await ann.locator('tbody a[href^="/console/keys/"]').first().click();
  await ann.waitForURL(/\/console\/keys\/key_.*interface=/);
  await ann.goto('/console/audit?since=2100-01-01T00:00');
  await ann.getByText('Nothing here.').waitFor();
  await ann.goto('/console/audit');
  await check(ann);
  assert.equal((await ann.goto('/console/audit?since=yesterday')).status(), 400);
}

async function agents(browser) {
  const page = await open(browser);
  await signIn(page, { to: '/console/' });
  await page.goto('/console/agents');
  await page.waitForURL('**/console/agent-key?**');
  await page.getByLabel('AGENT key').fill('agt_wrong');
  await press(page, 'Use this key');
  await page.getByRole('alert').waitFor();
  await page.getByLabel('AGENT key').fill(given.agent);
  await press(page, 'Use this key');
  await heading(page, 'Agents');
  await page.getByRole('link', { name: 'New agent' }).click();
  await page.getByLabel('Name').fill('Not a name');
  await page.getByLabel('Model').fill('auto');
  await page.getByLabel('Instructions').fill('Be brief.');
  await page.getByLabel('Temperature').fill('0.5');
  await page.getByLabel('Others, as JSON').fill('{"seed": 7}');
  await press(page, 'Create agent');
  await page.locator('.field .error').getByText('name must have').waitFor();
  await check(page);
  await page.getByLabel('Name').fill('reviewer');
  await page.getByLabel('Tools, as JSON').fill('{');
  await press(page, 'Create agent');
  await page.locator('.field .error').getByText('tools must be a list in JSON').waitFor();
  await page.getByLabel('Tools, as JSON').fill('');
  await press(page, 'Create agent');
  await heading(page, 'reviewer');
  await page.locator('.badge-ok', { hasText: 'trusted' }).waitFor();
  await check(page);

  await page.getByLabel('Message', { exact: true }).fill('x = x + 1');
  await press(page, 'Send');
  await page.locator('.chat-assistant').getByText('well').waitFor();
  await page.locator('.chat-facts').getByText('a/model').waitFor();
  await check(page);
  await picture(page, 'console-agent');

  // Two at once: the second is told.
  const one = page.url(), path = `/v1/agents/${one.split('/').pop()}`;
  const patched = await ask(path, { key: given.agent, method: 'PATCH', body: { description: 'by another' } });
  assert.equal(patched.status, 200);
  await page.getByLabel('Instructions').fill('Be long.');
  await press(page, 'Save');
  await page.getByRole('alert').getByText('changed').waitFor();
  assert.equal(await page.getByLabel('Instructions').inputValue(), 'Be long.');
  await page.goto(one);
  await page.getByLabel('Instructions').fill('Be long.');
  await page.getByLabel('Others, as JSON').fill('');
  await submit(page, 'Save');
  const agent = await (await ask(path, { key: given.agent })).json();
  assert.deepEqual([agent.instructions, agent.defaults, agent.description], ['Be long.', { temperature: 0.5 }, 'by another']);

  // Keys of AGENT.
  await page.goto('/console/keys/new?interface=agent');
  await press(page, 'Create key');
  const secret = await secretOf(page);
  assert.match(secret, /^agt_/);
  assert.equal((await ask('/v1/agents', { key: secret })).status, 200);
  assert.ok(!(await page.content()).includes(given.agent));
  await check(page);

  await page.goto(one);
  await page.locator('summary', { hasText: 'Delete' }).click();
  await page.locator('details[open]').getByRole('button', { name: 'Delete this agent' }).click();
  await page.waitForURL('**/console/agents');
  await page.getByText('No agents.').waitFor();
  await submit(page, 'Sign out');
  await signIn(page, { to: '/console/' });
  await page.goto('/console/keys?interface=agent');
  await page.waitForURL('**/console/agent-key?**');
  assert.deepEqual(page.faults, []);
}

async function nodes(browser) {
  const page = await open(browser);
  await signIn(page, { to: '/console/nodes' });
  await page.getByRole('link', { name: 'Enrol a node' }).click();
  await page.getByLabel('Name').fill('rack');
  await page.getByLabel('Endpoint').fill('http://user@nowhere');
  await press(page, 'Enrol');
  await page.locator('.field .error').getByText('endpoint').waitFor();
  await page.getByLabel('Endpoint').fill('');
  await page.getByLabel('Models').fill('qwen*');
  await press(page, 'Enrol');
  await heading(page, 'Node enrolled');
  const secret = await secretOf(page);
  await check(page);
  const command = await page.locator('.snippet-code pre').textContent();
  assert.ok(command.includes(secret), command);
  const start = (command) => spawn('bash', ['-ec', command
    .replace('\nrerouter node', `\nexec ${given.rerouter} node --drain 1`)
    .replace('http://127.0.0.1:11434', given.upstream)], { stdio: 'ignore' });

  // The list follows the node, without being loaded again.
  await page.goto('/console/nodes');
  await page.locator('.badge-warn', { hasText: 'pending' }).waitFor();
  await page.evaluate(() => { window.same = true; });
  let node = start(command);
  try {
    await page.locator('.badge-ok', { hasText: 'ready' }).waitFor();
    await page.locator('tbody').getByText('qwen3').waitFor();
    await check(page);
    await picture(page, 'console-nodes');
    assert.equal(await page.evaluate(() => window.same), true);
    await page.getByRole('link', { name: 'rack' }).click();
    await heading(page, 'rack');
    await page.getByRole('region', { name: 'Models' }).getByText('nodes/qwen3').waitFor();
    await check(page);
    assert.equal(await chat(given.secret, 'nodes/qwen3'), 200);
    await page.evaluate(() => { window.same = true; });
    node.kill('SIGTERM');
    await page.locator('.badge-bad', { hasText: 'gone' }).waitFor();
    assert.equal(await page.evaluate(() => window.same), true);

    await press(page, 'Rotate');
    await heading(page, 'New secret');
    assert.notEqual(await secretOf(page), secret);
    const next = await page.locator('.snippet-code pre').textContent();
    assert.match(next, /--generation 2/);
    node = start(next);
    await page.getByRole('link', { name: 'rack' }).click();
    await page.locator('.badge-ok', { hasText: 'ready' }).waitFor();
  } finally {
    node.kill('SIGTERM');
  }
  await page.locator('summary', { hasText: 'Delete' }).click();
  await page.locator('details[open]').getByRole('button', { name: 'Delete this node' }).click();
  await page.waitForURL('**/console/nodes');
  await page.getByText('No nodes.').waitFor();
  await page.goto('/console/audit?action=node.rotate');
  assert.equal(await page.locator('tbody tr').count(), 1);
  assert.deepEqual(page.faults, []);
}

async function gateways(browser) {
  const page = await open(browser);
  await signIn(page, { to: '/console/gateways' });
  await page.locator('tr', { hasText: 'this one' }).getByText('serving').waitFor();
  // The other one is dead: that shows by itself, and no change hides it.
  await page.locator('tbody .badge', { hasText: /silent|fenced/ }).waitFor();
  await page.goto('/console/keys/new');
  await press(page, 'Create key');
  assert.match(await secretOf(page), /^rtr_/);
  await page.getByText('These gateways have not confirmed it yet').waitFor();
  await check(page);
  await page.goto('/console/gateways');
  await check(page);
  await page.locator('summary', { hasText: 'Forget' }).click();
  await page.locator('details[open]').getByRole('button', { name: /^Forget/ }).click();
  await page.locator('tbody tr').first().waitFor();
  assert.equal(await page.locator('tbody tr').count(), 1);
  assert.deepEqual(page.faults, []);
}

/** What dead gateways held is settled by an admin, and nobody else sees it. */
async function lost(browser) {
  const other = await open(browser);
  await signIn(other, { email: given.someone });
  assert.equal(await other.getByRole('heading', { name: 'Lost of budgets' }).count(), 0);
  const page = await open(browser);
  await signIn(page);
  await checkLooks(page, '/console/');
  const spent = page.getByLabel(`Spent of ${given.key} in ${given.period}`);
  assert.equal(await spent.inputValue(), '');
  await spent.fill('5');
  await press(page, 'Settle');
  await page.getByRole('alert').getByText('held less').waitFor();
  await check(page);
  await spent.fill('0.01');
  await press(page, 'Settle');
  await page.waitForURL('/console/');
  assert.equal(await page.getByRole('heading', { name: 'Lost of budgets' }).count(), 0);
  assert.deepEqual(page.faults, []);
}

async function playground(browser) {
  const page = await open(browser);
  await signIn(page, { to: '/console/playground' });
  const message = page.getByLabel('Message', { exact: true });
  const last = page.locator('.chat-turn').last();
  await page.getByLabel('Model').fill('auto');
  await message.fill('Where to?');
  await press(page, 'Where would it go?');
  await page.getByText('because rule default of recipe main takes it').waitFor();
  await check(page);
  await page.locator('summary', { hasText: 'System message' }).click();
  await page.getByLabel('System message', { exact: true }).fill('Be brief.');
  await message.fill('markup');
  await message.press('Control+Enter');
  await last.getByText('<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>').waitFor();
  await last.getByText('Answered by').waitFor();
  await last.getByText('a/model', { exact: true }).waitFor();
  await last.getByText('main · default').waitFor();
  await last.getByText('Ended by').waitFor();
  const capture = (await last.locator('a[href^="/console/captures/"]').textContent()).trim();
  await check(page);
  await picture(page, 'console-playground');
  assert.equal(await page.locator('.chat-log img, .chat-log script').count(), 0);

  // A stream is shown as it comes, and can be stopped.
  await message.fill('slow');
  await press(page, 'Send');
  await last.getByText('the beginning').waitFor();
  assert.equal(await last.getAttribute('aria-busy'), 'true');
  await press(page, 'Stop');
  await last.locator('dd', { hasText: 'you' }).waitFor();

  // An error in full, and the message is not lost.
  await message.fill('broken');
  await press(page, 'Send');
  await last.getByText(/HTTP 50\d/).waitFor();
  await last.getByText('the provider <b>broke</b>').waitFor();
  assert.equal(await message.inputValue(), 'broken');
  await check(page);
  await page.getByLabel('Model').fill('nobody/nothing');
  await press(page, 'Send');
  await last.getByText('HTTP 404').waitFor();
  await last.getByText('model_not_found').waitFor();
  await press(page, 'Where would it go?');
  await page.locator('[data-decision]').getByText('nobody/nothing').waitFor();
  await press(page, 'New conversation');
  assert.equal(await page.locator('.chat-turn').count(), 0);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(page.faults, []);
  return { capture };
}

/** Names full of markup stand on every page as text. */
async function hostile(browser) {
  const page = await open(browser);
  await signIn(page, { to: '/console/' });
  for (const { path, words } of given.pages) {
    await page.goto(path);
    const text = await page.locator('body').textContent();
    const values = await page.locator('input, textarea').evaluateAll((all) => all.map((one) => one.value));
    assert.ok([text, ...values].some((one) => one.includes(words)), `${path} does not show ${words}`);
    assert.equal(await page.locator('main img, main script, main b').count(), 0, path);
    await check(page);
    await page.setViewportSize({ width: 360, height: 740 });
    await check(page);
    await page.setViewportSize({ width: 1280, height: 900 });
  }
  assert.equal(await page.evaluate(() => window.hacked), undefined);
}

const scenes = { keys, people, agents, nodes, gateways, lost, playground, hostile };
await scenario(scenes[given.scene]);
