// A stream of thousands of events, a body of a mebibyte and a conversation of hundreds of turns open without freezing.
import { assert, check, given, open, scenario, signIn } from './lib.mjs';

// Longest time in milliseconds for which a page may not react.
const FREEZE = 1000;

await scenario(async (browser) => {
  const page = await open(browser);
  await signIn(page);
  await page.addInitScript(() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
      for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
    }).observe({ type: 'longtask', buffered: true });
  });
  const told = {};
  const quick = async (id, act) => {
    const began = Date.now();
    const answer = await page.goto(`/console/captures/${given[id]}`);
    const took = Date.now() - began;
    const bytes = (await answer.body()).length;
    assert.ok(bytes < 500_000, `${id}: ${bytes} bytes of HTML`);
    await act();
    const longest = await page.evaluate(() => Math.round(window.longest));
    assert.ok(longest < FREEZE, `${id}: frozen for ${longest} ms`);
    told[id] = { took, bytes, longest };
    await check(page);
  };
  const more = async (within) => {
    const button = within.locator('a.cap-more').first();
    const before = (await within.textContent()).length;
    await button.click();
    await page.waitForFunction(([one, length]) => one.textContent.length > length + 1000,
      [await within.elementHandle(), before]);
  };

  const raws = (side) => page.locator('details.cap-raw')
    .filter({ has: page.locator('summary', { hasText: new RegExp(`^${side}`) }) });

  await quick('stream', async () => {
    const answer = page.locator('.cap-answer');
    assert.match(await answer.textContent(), /word0 word1 word2 /);
    await more(answer);
    assert.match(await answer.textContent(), new RegExp(`word${given.events - 1} `));
    const raw = raws('Response');
    await raw.locator('summary').click();
    assert.match(await raw.textContent(), /data: \{"id":"chatcmpl-scripted"/);
    for (let times = 0; times < 3; times += 1) await more(raw);
  });
  await quick('body', async () => {
    const message = page.locator('.cap-user');
    for (let times = 0; times < 3; times += 1) await more(message);
    const raw = raws('Request');
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      raw.locator('summary').click().then(() => raw.getByRole('link', { name: 'Download' }).click()),
    ]);
    const chunks = [];
    for await (const chunk of await file.createReadStream()) chunks.push(chunk);
    const sent = JSON.parse(Buffer.concat(chunks).toString());
    assert.ok(sent.messages[0].content.length > 1_000_000);
  });
  await quick('turns', async () => {
    assert.ok(await page.getByText('Turn 499 of many.').count());
    assert.equal(await page.getByText('Turn 479 of many.').count(), 0);
    await page.getByRole('link', { name: 'Show earlier messages (480)' }).click();
    await page.getByText('Turn 479 of many.').waitFor();
    await page.getByRole('link', { name: 'Show earlier messages (460)' }).waitFor();
  });
  // Without scripts the same links lead to pages of their own.
  const plain = await open(browser, { javaScriptEnabled: false });
  await signIn(plain, { to: `/console/captures/${given.turns}` });
  await plain.getByRole('link', { name: 'Show earlier messages (480)' }).click();
  await plain.getByText('Turn 479 of many.').waitFor();
  return told;
});
