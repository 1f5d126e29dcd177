// Holds one page open for a test in another language: a line of JSON in, a line of JSON out.
//
//     node driver.mjs MODULES ADDRESS DOWNLOADS WIDTH HEIGHT [GROUND] [PIXELS A POINT]
//
// MODULES: playwright's folder. The address has ?drive in it, so that the page tells what it shows.
// What can be asked: {"do": "look" | "point" | "press" | "release" | "key" | "type" | "hand" | "drop" | "picture" | "text" | "complaints", …}.

import { readFile, rename } from "node:fs/promises";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { launch } from "./browser.mjs";

const [modules, address, downloads, width, height, ground = "dark", density = "1"] = process.argv.slice(2);
// Both: the context scales what the page is told, the flag what is drawn.
const browser = await launch(modules, [`--force-device-scale-factor=${density}`]);
const context = await browser.newContext({
  viewport: { width: Number(width), height: Number(height) },
  deviceScaleFactor: Number(density),
  colorScheme: ground,
  acceptDownloads: true,
});
const page = await context.newPage();
const complaints = [];
// Chromium's own word when it has WebGPU and no device for it: the workbench draws with WebGL 2 then.
const expected = "No available adapters.";
page.on("console", (line) => {
  if (/^(error|warning)$/.test(line.type()) && line.text() !== expected) {
    complaints.push(`${line.type()}: ${line.text()}`);
  }
});
page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
page.on("download", async (download) => {
  const path = join(downloads, download.suggestedFilename());
  await download.saveAs(`${path}.part`);
  // Whoever waits for it sees it whole.
  await rename(`${path}.part`, path);
});
await page.goto(address);

const KEYS = { Ctrl: "Control" };
const small = (key) => (/^[A-Z]$/.test(key) ? key.toLowerCase() : (KEYS[key] ?? key));

/** As a person's hand does it, with the file's bytes: a script has no file of the disk. */
function drop([name, bytes]) {
  const files = new DataTransfer();
  files.items.add(new File([Uint8Array.from(atob(bytes), (character) => character.charCodeAt(0))], name));
  const event = new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true });
  document.getElementById("loka").dispatchEvent(event);
}

const doing = {
  look: async () => (await page.waitForFunction(() => globalThis.loka?.look?.(), null, { timeout: 0 })).jsonValue(),
  point: ({ at: [x, y] }) => page.mouse.move(x, y),
  press: () => page.mouse.down(),
  release: () => page.mouse.up(),
  key: ({ keys }) => page.keyboard.press(keys.split("+").map(small).join("+")),
  type: ({ text }) => page.keyboard.type(text),
  hand: ({ path }) => page.setInputFiles("#loka-files", path),
  drop: async ({ path }) => page.evaluate(drop, [basename(path), (await readFile(path)).toString("base64")]),
  picture: ({ path }) => page.screenshot({ path }).then(() => null),
  text: () => page.locator("#loka-text").innerText(),
  complaints: () => complaints.splice(0),
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  let said;
  try {
    said = { answer: (await doing[asked.do](asked)) ?? null };
  } catch (error) {
    said = { error: String(error.message ?? error) };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
await browser.close();
