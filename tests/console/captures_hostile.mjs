// Requests, answers, names and errors full of markup and control characters are text, wherever they stand.
import { assert, check, given, open, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  const page = await open(browser);
  page.on('dialog', (dialog) => page.faults.push(`a dialog: ${dialog.message()}`));
  await signIn(page, { to: '/console/captures' });
  const harmless = async () => {
    await check(page);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    // An attribute may hold what a button copies.
    const text = await page.locator('body').innerText();
    const raw = text.match(/.{0,80}[\u0000-\u0008\u000b\u000c\u000e-\u001f\u202a-\u202e].{0,40}/);
    assert.equal(raw && JSON.stringify(raw[0]), null, page.url());
    assert.equal(await page.locator('main script, main img').count(), 0, page.url());
  };
  await harmless();
  await page.getByText('⟨U+202E⟩').first().waitFor();
  for (const id of given.hostile) {
    await page.goto(`/console/captures/${id}`);
    for (const closed of await page.locator('details:not(.confirm)').all()) {
      await closed.evaluate((one) => { one.open = true; });
    }
    await page.getByText('<script>window.hacked').first().waitFor();
    await harmless();
  }
  const [first, second] = given.hostile;
  await page.goto(`/console/captures/${first}/compare/${second}`);
  await page.getByText('<script>window.hacked').first().waitFor();
  await harmless();
  await page.goto(`/console/captures/${first}`);
  await page.getByRole('button', { name: 'Reroute' }).click();
  await page.waitForURL('**/compare/req_*');
  await harmless();
  // Addresses name nothing that is not there.
  for (const path of ['/%3Cscript%3E', `/${first}/text?part=%3Cscript%3E`, `/${first}/raw/%3Cscript%3E`,
    `/${first}/compare/%3Cscript%3E`]) {
    const answer = await page.goto(`/console/captures${path}`);
    assert.equal(answer.status(), 404, path);
    assert.equal(await page.locator('main script').count(), 0);
  }

  // Captures of others are as if they were not there.
  const other = await open(browser);
  await signIn(other, { email: given.other, to: '/console/captures' });
  await other.getByText('No requests yet.').waitFor();
  for (const path of ['', '/text?part=request', '/raw/request', '/messages', `/compare/${second}`]) {
    const answer = await other.goto(`/console/captures/${first}${path}`);
    assert.equal(answer.status(), 404, path);
  }
});
