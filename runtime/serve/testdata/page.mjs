// Tries the page in headless Chromium: page.mjs URL TOKEN FOLDER, with puppeteer-core, axe-core and @sparticuz/chromium (or CHROME) installed
// in the folder NODE_PATH. A package that sees or hears is sent the files in PICTURE, LARGE and CLIP. It prints what it found as JSON; screenshots go to FOLDER.
import {createRequire} from "node:module";
import {writeFileSync} from "node:fs";
import path from "node:path";

const require = createRequire(path.join(process.env.NODE_PATH, "x.js"));
const puppeteer = require("puppeteer-core");
const [url, token, folder] = process.argv.slice(2);
let executablePath = process.env.CHROME, args = ["--no-sandbox"];
if (!executablePath) {
  const {default: chromium} = await import(require.resolve("@sparticuz/chromium"));
  executablePath = await chromium.executablePath();
  args = chromium.args;
}
const browser = await puppeteer.launch({executablePath, args, headless: "shell"});
const found = {console: [], requests: [], violations: [], answers: []};
const views = {
  light: {width: 1000, height: 800, scheme: "light"}, dark: {width: 1000, height: 800, scheme: "dark"},
  phone: {width: 360, height: 640, scheme: "light"},
};
for (const [name, view] of Object.entries(views)) {
  const page = await browser.newPage();
  page.on("console", (m) => found.console.push(`${name}: ${m.type()}: ${m.text()}`));
  page.on("pageerror", (e) => found.console.push(`${name}: ${e.message}`));
  page.on("request", (r) => { if (!r.url().startsWith(url) && !r.url().startsWith("data:")) found.requests.push(r.url()); });
  await page.setViewport(view);
  await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: view.scheme}]);
  await page.goto(url, {waitUntil: "networkidle0"});
  const axe = async (when) => {
    await page.evaluate(() => document.querySelectorAll("script[data-axe]").forEach((s) => s.remove()));
    await page.evaluate(require("fs").readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    const result = await page.evaluate(() => window.axe.run(document, {resultTypes: ["violations"]}));
    for (const v of result.violations) found.violations.push(`${name}, ${when}: ${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`);
    found.rules = result.passes.length;
  };
  if (token) {
    await page.type("#token", token);
    await page.keyboard.press("Tab");
    await page.waitForFunction(() => document.getElementById("model").textContent !== "llmexport");
  } else {
    await page.click("#settings summary");
  }
  await axe("settings");
  await page.type("#system", "You are a king.");
  await page.type("#max_tokens", "24");
  await page.type("#temperature", "0");
  await page.click("#settings summary");
  const files = [process.env.PICTURE, process.env.LARGE, process.env.CLIP].filter(Boolean);
  found.attach = await page.evaluate(() => document.getElementById("attach").hidden ? "" : document.getElementById("attach").textContent);
  if (files.length) {
    const attached = (n) => page.waitForFunction((n) => document.querySelectorAll("#attached li").length === n, {}, n);
    await (await page.$("#file")).uploadFile(...files);
    await attached(files.length);
    await axe("attached");
    await page.click("#attached li:last-child button");
    await attached(files.length - 1);
    await (await page.$("#file")).uploadFile(files.at(-1));
    await attached(files.length);
  }
  const answered = () => page.waitForFunction(() => /tokens/.test(document.getElementById("status").textContent));
  await page.type("#message", "Who comes here?");
  await page.keyboard.press("Enter");
  await answered();
  await page.type("#message", "And what news?");
  await page.focus("#send");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("#messages li").length === 4 && !document.getElementById("send").disabled);
  await answered();
  found.answers.push(await page.evaluate(() => [...document.querySelectorAll("#messages .text")].map((e) => e.textContent).filter(Boolean)));
  found.shown = await page.evaluate(() => [...document.querySelectorAll("#messages img")].map((i) => `${i.alt} ${i.naturalWidth} x ${i.naturalHeight}`));
  await page.waitForFunction(() => [...document.querySelectorAll("#messages audio")].every((a) => a.duration > 0));
  found.shown.push(...await page.evaluate(() => [...document.querySelectorAll("#messages audio")].map((a) => `${a.ariaLabel} ${a.duration} s`)));
  found.status = await page.evaluate(() => document.getElementById("status").textContent);
  await axe("answers");
  writeFileSync(path.join(folder, name + ".png"), await page.screenshot());
  found.wide = found.wide || await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  if (!files.length) {
    // A long answer is stopped, and what came of it stays.
    // Drawn from all tokens alike, it does not end by itself.
    await page.evaluate(() => {
      for (const [id, value] of Object.entries({max_tokens: "3000", temperature: "100", top_k: "0", top_p: "1"})) document.getElementById(id).value = value;
    });
    await page.type("#message", "Tell me everything.");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("#messages li:last-child > .text").textContent.length > 3);
    await page.click("#stop");
    await page.waitForFunction(() => document.getElementById("status").textContent === "Stopped.");
  }
  await page.click("#reset");
  if (await page.evaluate(() => document.querySelectorAll("#messages li").length) !== 0) found.console.push(name + ": messages are left after the reset");
  await page.close();
}
await browser.close();
console.log(JSON.stringify(found));
