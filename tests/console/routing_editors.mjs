// Two people edit the routing document at once: the second one sees what the first one did.
import { assert, check, given, open, picture, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  const [one, two] = [await open(browser), await open(browser)];
  for (const page of [one, two]) await signIn(page, { to: '/console/routing' });
  const areaOf = (page) => page.getByLabel('Routing document', { exact: true });
  const review = async (page, text) => {
    await areaOf(page).fill(text);
    await page.getByRole('button', { name: 'Review and apply…' }).click();
    await page.getByRole('heading', { name: 'Your change' }).waitFor();
    await page.getByLabel('no more would go elsewhere than').fill('');
  };
  const mine = given.document.replace('prompt_tokens > 60', 'prompt_tokens > 70');
  const theirs = given.document.replace('name: default', 'name: usual');
  // Both review before either applies: so it is the API that refuses, by `If-Match`.
  await review(two, mine);
  await review(one, theirs);
  await one.getByRole('button', { name: 'Make it live' }).click();
  await one.getByRole('heading', { name: 'The change is live' }).waitFor();

  const [stale] = await Promise.all([
    two.waitForResponse((answer) => answer.request().method() === 'POST'),
    two.getByRole('button', { name: 'Make it live' }).click(),
  ]);
  assert.equal(stale.status(), 412);
  await two.getByRole('heading', { name: 'Another change came first' }).waitFor();
  await two.getByRole('heading', { name: 'What changed meanwhile' }).waitFor();
  const [meanwhile, yours] = [two.locator('.rt-diff').nth(0), two.locator('.rt-diff').nth(1)];
  assert.match(await meanwhile.locator('ins').innerText(), /usual/);
  assert.equal(await yours.locator('ins').count(), 2);
  await check(two);
  await picture(two, 'console-two-editors');

  // A change of both goes in on top of the first.
  await two.getByRole('button', { name: 'Edit yours again' }).click();
  await two.getByRole('heading', { name: 'Routing', level: 1 }).waitFor();
  assert.equal(await areaOf(two).inputValue(), mine);
  const both = mine.replace('name: default', 'name: usual');
  await review(two, both);
  await two.getByRole('button', { name: 'Make it live' }).click();
  await two.getByRole('heading', { name: 'The change is live' }).waitFor();
  const revision = await two.locator('#live').innerText();
  await one.goto('/console/routing');
  assert.equal(await areaOf(one).inputValue(), both);
  assert.deepEqual([...one.faults, ...two.faults], []);
  return { revision };
});
