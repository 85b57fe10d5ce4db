// Captures: a request appears while one looks, is found by filters, read, explained, run again and compared.
import { assert, check, checkLooks, given, open, picture, scenario, signIn } from './lib.mjs';

const ask = async (text) => {
  const answer = await fetch(`${given.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${given.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'auto', messages: [{ role: 'user', content: text }] }),
  });
  await answer.text();
  return answer.headers.get('x-request-id');
};
const at = (id) => `/console/captures/${id}`;

await scenario(async (browser) => {
  const page = await open(browser);
  await signIn(page, { to: '/console/captures' });
  await check(page);
  const rows = page.locator('#cap-list tbody tr');
  assert.equal(await rows.count(), 3);

  // A new request appears by itself, unless the list is paused.
  const fresh = await ask('Say another number.');
  await page.locator(`a[href="${at(fresh)}"]`).waitFor();
  assert.equal(await rows.count(), 4);
  await picture(page, 'console-captures');
  await page.getByLabel('Live').uncheck();
  await ask('And one more.');
  const renewed = page.waitForRequest((request) => request.headers()['hx-request'] === 'true', { timeout: 6000 });
  await assert.rejects(renewed);
  assert.equal(await rows.count(), 4);
  await page.getByLabel('Live').check();
  await page.waitForFunction(() => document.querySelectorAll('#cap-list tbody tr').length === 5);

  // Found by a filter; a wrong filter says so beside the form.
  await page.getByLabel('Answered by provider').fill('b');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.waitForURL('**/console/captures?*provider=b*');
  assert.equal(await rows.count(), 1);
  assert.match(await rows.first().textContent(), /200.*auto.*b\/plain.*instead of a\/plain.*2$/s);
  await page.goto('/console/captures?status=teapot');
  await page.getByText('status must be').waitFor();
  assert.equal(await page.getByLabel('Status').inputValue(), 'teapot');
  await check(page);
  await page.goto('/console/captures?kind=replays');
  await page.getByText('No request fits these filters.').waitFor();

  // Found by its id; a wrong one leads back to the list.
  await page.goto('/console/captures');
  await page.getByLabel('Request id').fill(` ${given.plain} `);
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.waitForURL(`**${at(given.plain)}`);
  const facts = await page.locator('.cap-facts').textContent();
  assert.match(facts, new RegExp(`User.*${given.email}.*Key.*laptop`, 's'));
  const none = await page.goto('/console/captures?id=req_none');
  assert.equal(none.status(), 404);
  await page.getByText('No such request.').waitFor();
  await check(page);
  await page.getByRole('link', { name: 'To the captures' }).click();
  await page.waitForURL('**/console/captures');

  // An answer that is an error does not look like a good one.
  const refused = await ask('Please refuse this.');
  await page.goto(at(refused));
  await page.locator('.badge-warn', { hasText: 'answered with an error' }).first().waitFor();
  assert.equal(await page.locator('.badge-ok', { hasText: 'answered' }).count(), 0);
  await check(page);

  // Why it went to the second provider.
  await page.goto('/console/captures?provider=b');
  await rows.first().getByRole('link').click();
  await page.waitForURL(`**${at(given.failed_over)}`);
  await checkLooks(page, at(given.failed_over));
  const why = page.getByRole('region', { name: 'Why it went there' });
  for (const words of [
    'Asked, but had an error (status 503',
    'If a/plain had answered, b/plain would not have been asked.',
    'If rule long had matched, b/long would have come first.',
    'prompt_tokens > 900000',
    'does not match',
  ]) await why.getByText(words).first().waitFor();
  const timeline = page.getByRole('region', { name: 'Timeline' });
  assert.match(await timeline.textContent(), /Received and decided.*a\/plain.*failed.*b\/plain.*answered.*End/s);
  await page.getByText('From the second provider.', { exact: true }).first().waitFor();
  await picture(page, 'console-capture', { fullPage: true });

  // The conversation of another dialect, with tools.
  await checkLooks(page, at(given.tools));
  const said = page.getByRole('region', { name: 'Conversation', exact: true });
  for (const words of ['How is it in Oslo?', 'Rainy.', 'And the weather in Rome?', '"city": "Rome"']) {
    await said.getByText(words).waitFor();
  }
  await said.getByText('System', { exact: true }).click();
  await said.getByText('You are terse.').waitFor();
  await said.getByText('1 tool', { exact: true }).click();
  await said.getByText('Looks up.').waitFor();
  await check(page);

  // A dry run decides only.
  await page.goto(at(given.plain));
  await page.getByRole('button', { name: 'Dry run' }).click();
  await page.getByText(/The live document \(revision [0-9a-f]+\) sends it to a\/plain by rule main\.rest\./).waitFor();
  await check(page);

  // A reroute leads to the comparison.
  await page.getByRole('button', { name: 'Reroute' }).click();
  await page.waitForURL(`**${at(given.plain)}/compare/req_*`);
  await page.getByRole('heading', { name: 'Two requests compared' }).waitFor();
  assert.ok(await page.locator('.diff del', { hasText: /^\d+\.$/ }).count());
  assert.ok(await page.locator('.diff ins', { hasText: /^\d+\.$/ }).count());
  await picture(page, 'console-compare');
  await checkLooks(page, page.url().slice(given.url.length));
  await page.goto(at(given.plain));
  await page.getByRole('link', { name: 'compare', exact: true }).waitFor();
  await page.goto('/console/captures?kind=replays');
  assert.equal(await rows.count(), 1);
  assert.match(await rows.first().textContent(), /replay/);

  // Any other request is chosen from the list, also after a filter.
  await page.goto(at(given.plain));
  await page.getByRole('link', { name: 'Compare with…' }).click();
  await page.getByText('Choose the request to compare with').waitFor();
  await check(page);
  const all = await rows.count();
  assert.equal(await rows.getByRole('link', { name: 'compare' }).count(), all - 1);
  await page.getByLabel('Answered by provider').fill('b');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.waitForURL('**/console/captures?*provider=b*');
  assert.equal(await rows.count(), 1);
  await checkLooks(page, page.url().slice(given.url.length));
  await rows.getByRole('link', { name: 'compare' }).click();
  await page.waitForURL(`**${at(given.plain)}/compare/${given.failed_over}`);
  await page.locator('.diff ins', { hasText: 'second' }).waitFor();

  // What fails says so, and leaves a replay to look at.
  const busy = await ask('busy');
  await page.goto(at(busy));
  await page.getByRole('button', { name: 'Reroute' }).click();
  await page.waitForURL(`**${at(busy)}/compare/req_*`);

  // Deleted after a question, with its replay.
  await page.goto(at(given.plain));
  await page.locator('summary', { hasText: 'Delete it with its replays and its shadow' }).click();
  await page.locator('details.confirm[open]').getByRole('button').click();
  await page.waitForURL('**/console/captures');
  const gone = await page.goto(at(given.plain));
  assert.equal(gone.status(), 404);
  await check(page);

  // Without scripts: the list, a capture and its parts are there.
  const plain = await open(browser, { javaScriptEnabled: false });
  await signIn(plain, { to: at(given.tools) });
  assert.equal(await plain.getByRole('button', { name: 'Reroute' }).count(), 0);
  await plain.getByText('And the weather in Rome?').first().waitFor();
});
