// Routing without scripts, and for somebody who may not see the document.
import { assert, check, given, open, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  const page = await open(browser, { javaScriptEnabled: false });
  await signIn(page, { to: '/console/routing' });
  const area = page.getByLabel('Routing document', { exact: true });
  await area.fill(given.document.replace('auto: main', 'auto: mian'));
  await page.getByRole('button', { name: 'Check' }).click();
  await page.getByRole('link', { name: /^Line \d+, column \d+$/ }).waitFor();
  assert.match(await area.inputValue(), /auto: mian/);

  const dear = '[ { target: other/large }, { target: demo/small } ]';
  const changed = given.document.replace(dear, '[ { target: demo/small } ]');
  await area.fill(changed);
  await page.getByRole('button', { name: 'What would this change?' }).click();
  await page.getByText('3 of 9 requests (33 %) would have another first choice.').waitFor();
  assert.equal(await area.inputValue(), changed);

  // A document that cannot run is not evaluated: its problems are told instead.
  await area.fill('recipes: [');
  await page.getByRole('button', { name: 'What would this change?' }).click();
  await page.getByRole('heading', { name: 'The document cannot be evaluated' }).waitFor();
  // Nor can it become live.
  await page.getByRole('button', { name: 'Review and apply…' }).click();
  await page.getByText('This document cannot become live.').waitFor();
  await page.getByRole('link', { name: /^Line \d+, column \d+$/ }).first().waitFor();
  assert.equal(await page.getByRole('button', { name: 'Make it live' }).count(), 0);
  await page.getByRole('button', { name: 'Back to the editor' }).click();
  await area.fill(changed);
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download' }).click(),
  ]);
  assert.equal(file.suggestedFilename(), 'routing.yaml');

  const most = page.getByLabel('no more would go elsewhere than');
  await page.getByRole('button', { name: 'Review and apply…' }).click();
  await most.fill('many');
  await page.getByRole('button', { name: 'Make it live' }).click();
  await page.getByText('How many may go elsewhere must be a percentage').waitFor();
  await most.fill('50%');
  await page.getByRole('button', { name: 'Make it live' }).click();
  await page.getByRole('heading', { name: 'The change is live' }).waitFor();

  // Somebody else: the pages refuse in the words of the API, and show nothing of the document.
  const other = await open(browser);
  await signIn(other, { email: given.someone });
  assert.equal(await other.getByRole('link', { name: 'Routing' }).count(), 0);
  for (const path of ['', '/evaluate', '/revisions', '/revisions/a/b']) {
    const answer = await other.goto(`/console/routing${path}`);
    assert.equal(answer.status(), 403, path);
    assert.match(await answer.text(), /for admins, and for keys with the scope <code>config<\/code>/);
    await check(other);
  }
});
