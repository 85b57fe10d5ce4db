// The routing document in the console: a mistake and its message, the picture, what a change would do, the gate,
// the change itself, and back.
import { assert, check, checkLooks, given, open, picture, proxy, scenario, signIn } from './lib.mjs';

/** Asks the gateway for an answer to a long request, and gives the model that served it. */
const served = async () => {
  const body = { model: 'auto', messages: [{ role: 'user', content: 'a long story '.repeat(60) }] };
  const answer = await fetch(`${given.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${given.key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  assert.equal(answer.status, 200);
  return answer.headers.get('x-rerouter-model');
};

await scenario(async (browser) => {
  const page = await open(browser);
  page.on('dialog', (dialog) => page.faults.push(`a dialog: ${dialog.message()}`));
  await signIn(page, { to: '/console/routing' });
  await checkLooks(page, '/console/routing');
  const area = page.getByLabel('Routing document', { exact: true });
  assert.equal(await area.inputValue(), given.document);
  const messages = page.locator('#rt-messages');
  await messages.getByText('No problem was found.').waitFor();
  const numbers = () => page.locator('.rt-gutter').textContent();
  assert.equal((await numbers()).trim().split('\n').length, given.document.split('\n').length);

  // The picture: each way with its share of today's requests (there are none of yesterday).
  const drawing = page.locator('svg.rt-picture');
  for (const words of ['100 % · 9', '67 % · 6', '33 % · 3']) {
    await drawing.getByText(words, { exact: true }).first().waitFor();
  }
  await drawing.locator('title', { hasText: '<img/src=x/onerror=alert(1)>' }).first().waitFor({ state: 'attached' });
  await page.getByText('shares of the 9 requests of today so far').waitFor();
  await page.getByText('The same in words').click();
  await page.getByRole('listitem').filter({ hasText: 'other/large, healthy' }).first().waitFor();
  assert.equal(await page.locator('img').count(), 0);
  await picture(page, 'console-routing', { fullPage: true });

  // A mistake is told at its line as one types, and a click goes there.
  await area.fill(given.document.replace('recipes:\n  main:', 'recipes:\n  mian:'));
  const wrong = given.document.split('\n').findIndex((line) => line.includes('auto: main')) + 1;
  const link = messages.getByRole('link', { name: `Line ${wrong}, column` }).first();
  await link.waitFor();
  assert.match(await numbers(), new RegExp(`● ${wrong}\n`));
  await check(page);
  await picture(page, 'console-routing-problem');
  await link.click();
  const [focused, at] = await area.evaluate((one) => [document.activeElement === one, one.selectionStart]);
  assert.equal(focused, true);
  assert.equal(given.document.slice(0, at).split('\n').length, wrong);
  // The tabulator leaves the text.
  await page.keyboard.press('Tab');
  assert.equal(await area.evaluate((one) => document.activeElement === one), false);

  // Without it: a change that sends the long requests to the cheap model.
  const dear = '[ { target: other/large }, { target: demo/small } ]';
  const cheap = given.document.replace(dear, '[ { target: demo/small } ]');
  assert.notEqual(cheap, given.document);
  await area.fill(cheap);
  await messages.locator('.badge-ok').waitFor();
  assert.doesNotMatch(await numbers(), /●/);

  // What would it change?
  await page.getByText('Which requests are decided again').click();
  await page.locator('select[name=limit]').selectOption('1000');
  await page.getByRole('button', { name: 'What would this change?' }).click();
  const report = page.locator('#rt-report');
  await report.getByRole('heading', { name: 'What would change' }).waitFor();
  await report.getByText('3 of 9 requests (33 %) would go to another target.').waitFor();
  assert.match(await report.locator('.rt-stats').innerText(), /Difference\s+−\$/);
  await report.locator('svg.rt-flow').getByText('other/large · 3 · 33 %').waitFor();
  const row = report.getByRole('row').filter({ hasText: 'other/large' }).last();
  assert.match(await row.innerText(), /demo\/small/);
  assert.match(await row.innerText(), /targets/);
  assert.match(await row.getByRole('link').first().getAttribute('href'), /^\/console\/captures\/req_/);
  assert.equal(await row.getByRole('link').count(), 3);
  await check(page);
  await picture(page, 'console-what-would-change', { fullPage: true });

  // The gate refuses it, with its report.
  await page.getByRole('button', { name: 'Review and apply…' }).click();
  await page.getByRole('heading', { name: 'Your change' }).waitFor();
  assert.equal(await page.locator('del.rt-line').count(), 1);
  assert.match(await page.locator('del.rt-line mark').first().innerText(), /other|large/);
  await check(page);
  await page.getByLabel('no more would go elsewhere than').fill('1%');
  const apply = page.getByRole('button', { name: 'Make it live' });
  const [refused] = await Promise.all([
    page.waitForResponse((answer) => answer.request().method() === 'POST'),
    apply.click(),
  ]);
  assert.equal(refused.status(), 409);
  await page.getByText('3 of 9 requests (33.33 %) would change their target; the maximum is 1.00 %.').waitFor();
  await page.getByText('Nothing has changed.').waitFor();
  await page.getByRole('heading', { name: 'What would change' }).waitFor();
  await check(page);
  await picture(page, 'console-gate');
  assert.equal(await served(), 'large');

  // With a wider gate it passes, and serves the next request.
  await page.getByLabel('no more would go elsewhere than').fill('50%');
  await apply.click();
  await page.getByRole('heading', { name: 'The change is live' }).waitFor();
  const revision = await page.locator('#live').innerText();
  await check(page);
  assert.equal(await served(), 'small');

  // The revisions: who made them, their difference, and back to the first.
  await page.getByRole('main').getByRole('link', { name: 'Revisions' }).first().click();
  await page.getByRole('heading', { name: 'Revisions', level: 1 }).waitFor();
  await checkLooks(page, '/console/routing/revisions');
  const live = page.getByRole('row').filter({ hasText: revision });
  assert.match(await live.innerText(), new RegExp(given.email));
  await live.getByText('live', { exact: true }).waitFor();
  const first = page.getByRole('row').filter({ hasText: given.base });
  assert.equal(await first.count(), 1);
  await page.getByRole('button', { name: 'Compare the two' }).click();
  await page.getByRole('heading', { name: 'Two revisions' }).waitFor();
  assert.match(new URL(page.url()).pathname, new RegExp(`^/console/routing/revisions/[0-9a-f]{12}/${revision}$`));
  assert.match(await page.locator('ins.rt-line').innerText(), /demo\/small/);
  await check(page);
  await picture(page, 'console-revisions');
  await page.goBack();
  await first.locator('summary').focus();
  await page.keyboard.press('Enter');
  await first.getByRole('button', { name: 'Roll back' }).click();
  await page.getByRole('heading', { name: 'The change is live' }).waitFor();
  assert.equal(await served(), 'large');
  await page.goto('/console/routing/revisions');
  assert.match(await page.getByRole('row').nth(1).innerText(), /rollback/);

  // An evaluation whose answer does not come can be stopped; one that breaks off says so, and can be tried again.
  const between = await proxy();
  const slow = await open(browser, { url: between.url });
  await signIn(slow, { to: '/console/routing/evaluate' });
  await slow.getByText('No problem was found.').waitFor();
  between.hold();
  await slow.getByRole('button', { name: 'What would this change?' }).click();
  await slow.getByText('Deciding captured requests again').waitFor();
  await slow.getByRole('button', { name: 'Stop' }).click();
  await slow.locator('#rt-progress').waitFor({ state: 'hidden' });
  between.cut();
  await slow.getByRole('button', { name: 'What would this change?' }).click();
  await slow.getByText('The evaluation did not end.').waitFor();
  between.open();
  await slow.getByRole('button', { name: 'Try again' }).click();
  await slow.getByText('Each request would go where it goes now.').waitFor();
  between.close();

  // A text that is not applied is not lost without a question: neither in the editor nor in the review.
  const writer = await open(browser);
  await signIn(writer, { to: '/console/routing' });
  const leave = async (answer) => {
    const asked = writer.waitForEvent('dialog');
    const left = writer.getByRole('link', { name: 'Captures', exact: true }).first().click();
    const dialog = await asked;
    assert.equal(dialog.type(), 'beforeunload');
    await dialog[answer]();
    await left;
  };
  const text = writer.getByLabel('Routing document', { exact: true });
  await text.fill(cheap);
  await leave('dismiss');
  assert.equal(await text.inputValue(), cheap);
  let dialogs = 0;
  const count = () => { dialogs += 1; };
  writer.on('dialog', count);
  await Promise.all([writer.waitForEvent('download'), writer.getByRole('button', { name: 'Download' }).click()]);
  await writer.getByRole('button', { name: 'Review and apply…' }).click();
  await writer.getByRole('heading', { name: 'Your change' }).waitFor();
  assert.equal(dialogs, 0);
  writer.off('dialog', count);
  await leave('dismiss');
  await writer.getByRole('button', { name: 'Back to the editor' }).click();
  await writer.getByRole('heading', { name: 'Routing', level: 1 }).waitFor();
  await leave('accept');
  await writer.waitForURL('**/console/captures');
  // Nothing was written: nothing is asked.
  writer.on('dialog', count);
  await writer.goto('/console/routing');
  await writer.getByRole('link', { name: 'Captures', exact: true }).first().click();
  await writer.waitForURL('**/console/captures');
  assert.equal(dialogs, 0);
  assert.deepEqual([...page.faults, ...writer.faults], []);
});
