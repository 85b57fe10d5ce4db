// The overview: the numbers are those of the API, what needs attention leads to its place, charts have their tables.
import { assert, check, checkLooks, given, open, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  const page = await open(browser);
  await signIn(page);
  const stat = (name) => page.locator(`[data-stat="${name}"] .value`).innerText();
  const number = (text) => Number(text.replaceAll(/[^\d.]/g, ''));

  for (const range of ['Last hour', 'Last week', 'Last month', 'Last day']) {
    await page.getByRole('navigation', { name: 'Time' }).getByRole('link', { name: range }).click();
    await page.locator('.tab[aria-current="true"]', { hasText: range }).waitFor();
    const { requests, errors, total_tokens: tokens, cost_usd: cost } = given.total;
    assert.equal(number(await stat('requests')), requests, range);
    assert.equal(number(await stat('errors')), errors, range);
    assert.equal(number(await stat('tokens')), tokens, range);
    assert.ok(Math.abs(number(await stat('cost')) - cost) < 0.0001, range);
    assert.match(await stat('latency'), /\d (ms|s)$/, range);
  }

  // Each grouping has the rows of the API, the largest first.
  for (const [by, rows] of Object.entries(given.groups)) {
    await page.getByRole('navigation', { name: 'Grouped by' }).getByRole('link', { name: by, exact: true }).click();
    const order = by === 'key' ? 'cost' : 'requests';
    await page.getByRole('heading', { name: `Most ${order} by ${by}` }).waitFor();
    const lines = page.locator('.overview-largest tbody tr');
    const shown = await lines.evaluateAll((found) => found.map((line) => [...line.cells].slice(0, 3).map((cell) => cell.innerText.trim())));
    assert.deepEqual(shown.map(([name, requests, errors]) => [name, Number(requests), Number(errors)]), rows, by);
  }

  // One value alone, and back.
  await page.goto('/console/?range=hour&by=target');
  await page.getByRole('link', { name: 'b/model', exact: true }).click();
  await page.getByText('only target b/model').waitFor();
  assert.equal(number(await stat('requests')), 10);
  assert.equal(number(await stat('errors')), 0);
  await page.getByRole('link', { name: 'show all' }).click();
  await page.getByText('only target').waitFor({ state: 'detached' });

  // Charts are drawn, drawn again at another width, and have the same numbers as tables.
  const figures = page.locator('figure.chart');
  assert.equal(await figures.count(), 5);
  assert.equal(await page.locator('figure.chart canvas').count(), 5);
  const width = () => page.locator('figure.chart canvas').first().evaluate((canvas) => canvas.clientWidth);
  const wide = await width();
  await page.setViewportSize({ width: 500, height: 900 });
  await page.waitForFunction((before) => document.querySelector('figure.chart canvas').clientWidth < before, wide);
  await page.setViewportSize({ width: 1280, height: 900 });
  const requests = figures.filter({ has: page.getByText('Requests', { exact: true }) });
  await requests.locator('summary').focus();
  await page.keyboard.press('Enter');
  const cells = await requests.locator('tbody td').allInnerTexts();
  assert.equal(cells.reduce((sum, cell) => sum + number(cell), 0), given.total.requests);
  await check(page);

  // What is wrong is said, with the way to where it is mended.
  const findings = page.locator('.overview-findings > li');
  const finding = (words) => findings.filter({ hasText: words });
  const opened = finding('a/model: breaker open');
  const links = await opened.getByRole('link').evaluateAll((all) => all.map((link) => link.getAttribute('href')));
  assert.deepEqual(links.slice(1), ['/console/captures?decided_provider=a&decided_model=model', '/console/routing']);
  await opened.getByRole('link', { name: 'Its state' }).click();
  const row = page.locator('tr:target');
  assert.match(await row.innerText(), /^a\/model\s+breaker open until/);
  for (const [words, href] of [
    [/team.* has used \d+ % of the budget of its day/, `/console/keys/${given.team}?interface=router`],
    [/soon.* expires /, `/console/keys/${given.soon}?interface=router`],
    [/A change of the routing document was refused/, '/console/routing'],
  ]) {
    assert.equal(await finding(words).getByRole('link').getAttribute('href'), href, words);
  }
  // The urgent ones come first.
  const kinds = await findings.locator('.badge').evaluateAll((all) => all.map((badge) => badge.innerText));
  assert.deepEqual(kinds, [...kinds].sort(), 'now before soon');

  for (const view of ['', '?range=week&by=key', '?range=month&by=user', '?by=label']) await checkLooks(page, `/console/${view}`);
  assert.equal((await page.goto('/console/?range=year')).status(), 400);

  // The state is asked for again by itself; the traffic stays as it is.
  await page.goto('/console/');
  const before = await page.locator('#now time').first().innerText();
  await page.evaluate(() => window.htmx.ajax('GET', '/console/?part=now', '#now'));
  await page.waitForFunction(() => document.querySelectorAll('#now h2').length >= 3);
  assert.ok(before && await page.locator('figure.chart canvas').count() === 5);

  // Somebody else sees nothing of it.
  const other = await open(browser);
  await signIn(other, { email: given.someone });
  await other.getByText('No request ended in this time.').waitFor();
  assert.equal(await other.getByRole('heading', { name: 'Targets' }).count(), 0);
  assert.equal(await other.locator('.overview-findings > li').count(), 0);
  await other.getByText('nothing', { exact: true }).waitFor();
  await checkLooks(other, '/console/');
});
