// Every page, to an admin and to somebody else: wide and narrow, light and dark, without scripts.
import { ALL_LOOKS, assert, check, checkLooks, given, open, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  const statuses = {};
  const admin = await open(browser);
  await signIn(admin);
  for (const path of given.pages) statuses[path] = await checkLooks(admin, path, ALL_LOOKS);
  assert.equal((await admin.goto('/console/nowhere')).status(), 404);
  await check(admin);
  const someone = await open(browser);
  await signIn(someone, { email: given.someone });
  for (const path of given.pages) await checkLooks(someone, path);
  // What a page shows it shows without scripts.
  const plain = await open(browser, { javaScriptEnabled: false });
  await signIn(plain);
  for (const path of given.pages) {
    await plain.goto(path);
    assert.equal(await plain.locator('h1').count(), 1, path);
  }
  return statuses;
});
