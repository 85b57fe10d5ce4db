// The link of a start.
import { assert, check, given, open, scenario } from './lib.mjs';

await scenario(async (browser) => {
  const page = await open(browser);
  await page.goto(given.link);
  await check(page);
  await page.getByLabel('E-mail').fill(given.email);
  await page.getByLabel('Password').fill('short');
  await page.getByLabel('The same again').fill('short');
  await page.getByRole('button', { name: 'Make the account' }).click();
  await page.getByText(/must have/).waitFor();
  await check(page);
  await page.getByLabel('Password').fill(given.password);
  await page.getByLabel('The same again').fill(given.password);
  await page.getByRole('button', { name: 'Make the account' }).click();
  await page.waitForURL('**/console/');
  // An admin: with everybody's pages.
  await page.getByRole('link', { name: given.email }).waitFor();
  await check(page);
  const answer = await page.goto(given.link);
  assert.equal(answer.status(), 403);
  await page.getByText('This link has expired or was used').waitFor();
  await check(page);
});
