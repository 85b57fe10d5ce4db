// A gateway that is slow or away, by a proxy in between: pages say so, and can be asked for again.
import { assert, given, open, proxy, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  const between = await proxy();
  const page = await open(browser, { url: between.url });
  await signIn(page);

  // A part of a page, while nothing comes through: it comes when it can.
  between.hold();
  await page.evaluate(() => { window.htmx.ajax('GET', '/console/password', '#content'); });
  await page.waitForTimeout(200);
  assert.equal(await page.getByLabel('Current password').count(), 0);
  between.open();
  await page.getByLabel('Current password').waitFor();

  // And while there is nobody: it says so, and asks again when it is told to.
  between.cut();
  await page.evaluate(() => { window.htmx.ajax('GET', '/console/', '#content'); });
  await page.getByText('The gateway does not answer.').waitFor();
  assert.equal(await page.getByLabel('Current password').count(), 1, 'what was there stays');
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByText('The gateway does not answer.').waitFor();
  between.open();
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByLabel('Current password').waitFor({ state: 'detached' });
  assert.equal(await page.getByText('The gateway does not answer.').count(), 0);

  // Scripts of pages hear the refusal's own words.
  const words = await page.evaluate(() => window.rerouter.call('/v1/users/usr_none').catch((error) => error.message));
  assert.equal(words, 'No such user.');
  between.cut();
  const away = await page.evaluate(() => window.rerouter.call('/v1/users').catch((error) => error.message));
  assert.equal(away, 'The gateway does not answer.');

  // A form that reached nobody: the browser keeps it, and it is sent again.
  between.open();
  await page.goto('/console/password');
  await page.getByLabel('Current password').fill('not the password');
  await page.getByLabel('New password').fill('battery staple');
  await page.getByLabel('The same again').fill('battery staple');
  between.cut();
  await page.getByRole('button', { name: 'Change the password' }).click();
  await page.waitForURL('chrome-error://**');
  between.open();
  await page.reload();
  await page.getByText('The current password is wrong.').waitFor();
  between.close();
});
