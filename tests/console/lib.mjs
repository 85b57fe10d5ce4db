// What the scenarios of the console share. tests/support/browser.rs starts a scenario with node; its input is the
// JSON in the variable CONSOLE, its result the last line that it prints.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import { delimiter, join } from 'node:path';

const require = createRequire(new URL('../sdk/package.json', import.meta.url));
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

/** What the test gave: at least `url`, mostly `email` and `password`. */
export const given = JSON.parse(process.env.CONSOLE);

const chromiumPath = () => process.env.PATH.split(delimiter).map((folder) => join(folder, 'chromium')).find(existsSync);

/** Runs a scenario with a browser. What it returns is printed for the test. */
export async function scenario(run) {
  const browser = await chromium.launch({
    executablePath: chromiumPath(),
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking'],
  });
  try {
    const result = await run(browser);
    console.log(JSON.stringify(result ?? null));
  } finally {
    await browser.close();
  }
}

/** A page of its own session, 1280 px wide unless told. `page.faults` are errors of scripts and requests elsewhere. */
export async function open(browser, { width = 1280, height = 900, dark = false, url = given.url, ...more } = {}) {
  const context = await browser.newContext({
    baseURL: url, viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', reducedMotion: 'reduce', ...more,
  });
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  page.faults = [];
  // Statuses of answers are the scenario's to judge; Chromium logs each as an error.
  const status = /Failed to load resource: the server responded with a status of/;
  page.on('console', (line) => {
    if (line.type() === 'error' && !status.test(line.text())) page.faults.push(line.text());
  });
  page.on('pageerror', (error) => page.faults.push(String(error)));
  page.on('request', (request) => {
    const to = request.url();
    if (!to.startsWith(new URL(url).origin) && !to.startsWith('data:')) page.faults.push(`a request to ${to}`);
  });
  return page;
}

/** Signs in by the form, and ends where it leads. */
export async function signIn(page, { email = given.email, password = given.password, to = '/console/' } = {}) {
  await page.goto(`/console/sign-in?next=${encodeURIComponent(to)}`);
  await page.getByLabel('E-mail').fill(email);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL((url) => url.pathname + url.search === to);
}

/** Holds what every page keeps to: axe, one heading of the page, no scrolling sideways, no faults. */
export async function check(page) {
  const where = page.url();
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  const told = serious.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html).join(' | ')}`);
  assert.deepEqual(told, [], where);
  assert.equal(await page.locator('h1').count(), 1, where);
  const [wide, inner] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  if (wide > inner) {
    const widest = await page.evaluate(() => [...document.querySelectorAll('body *')]
      .filter((one) => one.getBoundingClientRect().right > window.innerWidth + 1)
      .map((one) => one.outerHTML.slice(0, 120)).slice(0, 5));
    assert.fail(`${where} scrolls sideways (${wide} > ${inner}): ${widest.join('\n')}`);
  }
  assert.deepEqual(page.faults, [], where);
}

/** The looks that every page must bear. */
export const ALL_LOOKS = [[1280, 'light'], [1280, 'dark'], [360, 'dark'], [360, 'light']];

/** Goes to a page, and checks it in each of these looks. Gives its status. */
export async function checkLooks(page, path, looks = [[1280, 'light'], [360, 'dark']]) {
  const { width, height } = page.viewportSize();
  const answer = await page.goto(path);
  for (const [wide, colorScheme] of looks) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.setViewportSize({ width: wide, height });
    await check(page);
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
  await page.setViewportSize({ width, height });
  return answer.status();
}

/** A picture for README and docs, where the test asked for them (REROUTER_PICTURES). */
export async function picture(page, name, options = {}) {
  if (!given.pictures) return;
  mkdirSync(given.pictures, { recursive: true });
  await page.screenshot({ path: `${given.pictures}/${name}.png`, animations: 'disabled', ...options });
}

/** What a picture of the page from one element to another takes, over the whole width. */
export async function between(page, from, to) {
  await page.evaluate(() => window.scrollTo(0, 0));
  const [first, last] = [await from.boundingBox(), await to.boundingBox()];
  const y = Math.max(first.y - 8, 0);
  const { width } = page.viewportSize();
  return { fullPage: true, clip: { x: 0, y, width, height: last.y + last.height - y } };
}

/** A proxy before the gateway that can hold all bytes, or cut all connections. */
export async function proxy(to = given.url) {
  const { hostname, port } = new URL(to);
  const state = { flow: 'open' };
  const pairs = new Set();
  const resume = () => pairs.forEach(({ client, server }) => { client.resume(); server.resume(); });
  const pause = () => pairs.forEach(({ client, server }) => { client.pause(); server.pause(); });
  const drop = () => pairs.forEach(({ client, server }) => { client.destroy(); server.destroy(); });
  const listener = net.createServer((client) => {
    if (state.flow === 'cut') { client.destroy(); return; }
    const server = net.connect(port, hostname);
    const pair = { client, server };
    pairs.add(pair);
    for (const [from, into] of [[client, server], [server, client]]) {
      from.pipe(into);
      from.on('error', () => into.destroy());
      from.on('close', () => { into.destroy(); pairs.delete(pair); });
    }
    if (state.flow === 'hold') pause();
  });
  await new Promise((listening) => { listener.listen(0, '127.0.0.1', listening); });
  return {
    url: `http://127.0.0.1:${listener.address().port}`,
    hold() { state.flow = 'hold'; pause(); },
    cut() { state.flow = 'cut'; drop(); },
    open() { state.flow = 'open'; resume(); },
    close() { drop(); listener.close(); },
  };
}

export { assert };
