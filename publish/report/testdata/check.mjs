// Opens pages in Chromium, light and dark, on a screen and on a phone, and prints a line of JSON for every problem: violations of
// axe-core, messages of the console, requests, and content wider than the screen.
//
//   node check.mjs MODULES CHROMIUM SCREENSHOTS|- PAGE...
//
// MODULES is a directory node_modules with playwright-core and axe-core.
import {createRequire} from 'node:module';
import {readFileSync} from 'node:fs';
import {basename, join, resolve} from 'node:path';
import {pathToFileURL} from 'node:url';

const [modules, executablePath, screenshots, ...pages] = process.argv.slice(2);
const require = createRequire(join(resolve(modules), 'x.js'));
const {chromium} = require('playwright-core');
const axe = readFileSync(join(modules, 'axe-core', 'axe.min.js'), 'utf8');
const screens = {screen: {width: 1000, height: 800}, phone: {width: 360, height: 740}};

const browser = await chromium.launch({executablePath, args: ['--no-sandbox']});
try {
  for (const file of pages) {
    for (const colorScheme of ['light', 'dark']) {
      for (const [screen, viewport] of Object.entries(screens)) {
        const report = (kind, text) => console.log(JSON.stringify({page: basename(file), view: `${colorScheme} ${screen}`, kind, text}));
        const context = await browser.newContext({colorScheme, viewport});
        const page = await context.newPage();
        page.on('console', m => report('console', m.text()));
        page.on('pageerror', e => report('error', String(e)));
        let requests = 0;
        page.on('request', r => { if (requests++ > 0) report('request', r.url()); });
        await page.goto(pathToFileURL(resolve(file)).href);
        await page.evaluate(() => document.querySelectorAll('details').forEach(d => { d.open = true; }));
        const {width, inner} = await page.evaluate(() => ({width: document.documentElement.scrollWidth, inner: innerWidth}));
        if (width > inner) report('wide', `${width} pixels on a screen of ${inner}`);
        await page.evaluate(axe);
        const found = await page.evaluate(() => axe.run(document, {resultTypes: ['violations']}));
        for (const v of found.violations) report('axe', `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 200)).join(' | ')}`);
        if (screenshots !== '-') {
          await page.evaluate(() => document.querySelectorAll('details').forEach(d => { d.open = false; }));
          await page.screenshot({path: join(screenshots, `${basename(file, '.html')}-${colorScheme}-${screen}.png`), fullPage: true});
        }
        await context.close();
      }
    }
  }
} finally {
  await browser.close();
}
