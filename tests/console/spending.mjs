// Who spends most: by key and by label of keys, in any order, the largest or all.
import { assert, check, open, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  const page = await open(browser);
  await signIn(page, { to: '/console/?by=key' });
  const lines = page.locator('.overview-largest tbody tr');
  const rows = () => lines.evaluateAll((found) => found.map((line) => {
    return [...line.cells].slice(0, 2).map((cell) => cell.innerText.trim());
  }));
  const heading = (name) => page.getByRole('heading', { name, exact: true }).waitFor();
  const link = (navigation, name) => page.getByRole('navigation', { name: navigation })
    .getByRole('link', { name, exact: true });
  const order = (name) => link('Order', name).click();

  // The one that costs most comes first, with its name, although others have more requests.
  await heading('Most cost by key');
  assert.deepEqual((await rows())[0], ['dear', '1']);
  await order('requests');
  await heading('Most requests by key');
  assert.equal((await rows())[0][1], '2');
  assert.equal(await lines.count(), 10);
  await page.getByRole('link', { name: 'Show all' }).click();
  await page.getByRole('link', { name: 'Only the largest' }).waitFor();
  const all = await rows();
  assert.equal(all.length, 14);
  assert.deepEqual(all.slice(-2).map(([name]) => name).sort(), ['dear', 'odd']);
  for (const name of ['failed', 'tokens']) {
    await order(name);
    await heading(`Most ${name} by key`);
  }

  // Another grouping begins with its own order. The label may be one that keys have, or any.
  await link('Grouped by', 'label').click();
  await heading('Most cost by label team');
  assert.deepEqual((await rows())[0], ['search', '1']);
  await order('requests');
  await heading('Most requests by label team');
  const counts = (await rows()).map(([name, requests]) => `${name}: ${requests}`).sort();
  assert.deepEqual(counts, ['none: 1', 'search: 1', 'team 0: 12', 'team 1: 12']);
  const options = page.locator('#labels option');
  const suggested = await options.evaluateAll((found) => found.map((option) => option.value));
  assert.deepEqual(suggested, ['team', 'tier']);
  await page.getByLabel('Label of keys').fill('tier');
  await page.getByRole('button', { name: 'Show' }).click();
  await heading('Most requests by label tier');
  assert.deepEqual(await rows(), [['none', '25'], ['gold', '1']]);
  await check(page);
  await page.getByLabel('Label of keys').fill('no such label');
  const refused = page.waitForResponse((response) => response.url().includes('label=no'));
  await page.getByRole('button', { name: 'Show' }).click();
  assert.equal((await refused).status(), 400);
});
