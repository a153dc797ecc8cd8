// A headless Chromium that is told what to do, a JSON object a line, and answers each with one.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [packages, executablePath, library] = process.argv.slice(2);
const puppeteer = (await import(pathToFileURL(join(packages, "node_modules", "puppeteer-core", library)).href)).default;

const browser = await puppeteer.launch({
  args: ["--no-sandbox", "--single-process", "--no-zygote"], // the package's own turn web security off
  executablePath,
  headless: "shell",
  acceptInsecureCerts: true, // a proxy of a test makes its certificate itself
});
const page = await browser.newPage();
const said = [];
page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
page.on("pageerror", (error) => said.push(`error: ${error.message}`));
page.on("dialog", (dialog) => { said.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
let loads = 0;
page.on("framenavigated", () => { loads += 1; });

const steps = {
  goto: async ({ url }) => (await page.goto(url, { waitUntil: "load" }))?.status(),
  run: async ({ script }) => page.evaluate(script),
  wait: async ({ script, timeout }) => {
    for (const until = Date.now() + timeout; Date.now() < until; await new Promise((resume) => setTimeout(resume, 20))) {
      try {
        if (await page.evaluate(script)) return true;
      } catch (error) {
        // the page is on its way to another one
      }
    }
    throw new Error(`waited ${timeout} ms`);
  },
  press: async ({ key }) => page.keyboard.press(key),
  type: async ({ text }) => page.keyboard.type(text),
  look: async ({ width, height, theme }) => {
    await page.setViewport({ width, height });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
  },
  picture: async ({ path }) => { await page.screenshot({ path, fullPage: true }); },
  reaches: async ({ url }) => page.goto(url).then(() => true, () => false),
  cookies: async ({ url }) => page.cookies(url),
  tree: async () => page.accessibility.snapshot({ interestingOnly: false }),
  said: async () => said,
  loads: async () => loads,
};
console.log(JSON.stringify({ ready: await browser.version() }));
for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line);
  try {
    console.log(JSON.stringify({ result: (await steps[step.do](step)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ failed: String(error) }));
  }
}
await browser.close();
