// Signing in and out: by mouse and by keyboard, with a wrong password, after the end of a session.
import { assert, check, given, open, picture, scenario, signIn } from './lib.mjs';

await scenario(async (browser) => {
  const page = await open(browser);
  const there = '/console/password?from=a%20test';

  // Without a session every page leads to the sign-in, and from there back.
  await page.goto(there);
  assert.equal(new URL(page.url()).pathname, '/console/sign-in');
  await check(page);
  await picture(page, 'console-sign-in');

  await page.getByLabel('E-mail').fill(given.email);
  await page.getByLabel('Password').fill('not the password');
  const [refused] = await Promise.all([
    page.waitForResponse((answer) => answer.request().method() === 'POST'),
    page.getByRole('button', { name: 'Sign in' }).click(),
  ]);
  assert.equal(refused.status(), 401);
  await page.getByText('Wrong e-mail or password.').waitFor();
  assert.equal(await page.getByLabel('E-mail').inputValue(), given.email);
  assert.equal(await page.getByLabel('Password').inputValue(), '');
  await check(page);
  await page.getByLabel('Password').fill(given.password);
  await page.keyboard.press('Enter');
  await page.waitForURL((url) => url.pathname + url.search === there);
  await check(page);

  // The cookie is for the server only.
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite], ['rerouter_session', true, 'Lax']);
  assert.equal(await page.evaluate(() => document.cookie), '');

  // A session that ended elsewhere, as by `session.idle`: the next click leads to the sign-in, and back.
  const end = async () => {
    const [{ name, value }] = await page.context().cookies();
    const ended = await fetch(`${given.url}/v1/auth/logout`, { method: 'POST', headers: { cookie: `${name}=${value}` } });
    assert.equal(ended.status, 204);
  };
  await page.goto('/console/');
  await end();
  await page.getByRole('link', { name: given.email }).click();
  await page.waitForURL('**/console/sign-in?next=%2Fconsole%2Fpassword');
  await signIn(page, { to: '/console/password' });
  // The same where a part of a page is asked for.
  await end();
  await page.evaluate(() => window.htmx.ajax('GET', '/console/', '#content'));
  await page.waitForURL('**/console/sign-in?next=%2Fconsole%2Fpassword');
  await signIn(page, { to: '/console/' });

  // Another password ends the other sessions.
  const other = await open(browser);
  await signIn(other);
  await page.goto('/console/password');
  for (const [current, password, again, words] of [
    ['not the password', 'battery staple', 'battery staple', 'The current password is wrong.'],
    [given.password, 'battery staple', 'battery stable', 'The new passwords differ.'],
    [given.password, 'short', 'short', /must have/],
    [given.password, 'battery staple', 'battery staple', 'The password is changed.'],
  ]) {
    await page.getByLabel('Current password').fill(current);
    await page.getByLabel('New password').fill(password);
    await page.getByLabel('The same again').fill(again);
    await page.getByRole('button', { name: 'Change the password' }).click();
    await page.getByText(words).waitFor();
    await check(page);
  }
  await other.reload();
  assert.equal(new URL(other.url()).pathname, '/console/sign-in');

  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.waitForURL('**/console/sign-in');
  assert.deepEqual(await page.context().cookies(), []);

  // By keyboard only: over the link that skips the navigation, through the form, to the button.
  const keys = await open(browser);
  await keys.goto('/console/sign-in');
  const at = () => keys.evaluate(() => document.activeElement.name || document.activeElement.textContent);
  assert.equal(await at(), 'email');
  await keys.keyboard.type(given.email);
  await keys.keyboard.press('Tab');
  await keys.keyboard.type('battery staple');
  await keys.keyboard.press('Tab');
  assert.equal(await at(), 'Sign in');
  await keys.keyboard.press('Enter');
  await keys.waitForURL('**/console/');
  await keys.keyboard.press('Tab');
  assert.equal(await at(), 'Skip to the content');
  const ring = await keys.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(ring, 'solid');
  await keys.keyboard.press('Enter');
  assert.equal(await keys.evaluate(() => document.activeElement.id), 'main');
  for (let tabs = 0; (await at()) !== 'Sign out'; tabs += 1) {
    assert.ok(tabs < 60, 'no way to sign out by keyboard');
    await keys.keyboard.press('Shift+Tab');
  }
  await keys.keyboard.press('Enter');
  await keys.waitForURL('**/console/sign-in');
  assert.deepEqual([...page.faults, ...keys.faults, ...other.faults], []);
});
