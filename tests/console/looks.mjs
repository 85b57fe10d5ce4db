// Every page, to an admin and to somebody else: wide and narrow, light and dark, without scripts.
import { assert, checkLooks, given, open, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  for (const email of [given.email, given.someone]) {
    const page = await open(browser);
    await signIn(page, { email });
    for (const path of given.pages) await checkLooks(page, path);
    assert.equal((await page.goto('/console/nowhere')).status(), 404);
    await page.context().close();
  }
  // What a page shows it shows without scripts.
  const plain = await open(browser, { javaScriptEnabled: false });
  await signIn(plain);
  for (const path of given.pages) {
    await plain.goto(path);
    assert.equal(await plain.locator('h1').count(), 1, path);
  }
});
