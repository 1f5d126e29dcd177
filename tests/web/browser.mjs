// Debian's Chromium without a display, drawing by software.

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu-sandbox",
  "--use-angle=swiftshader",
  "--enable-unsafe-swiftshader",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
];

/** `modules`: the folder that playwright-core was installed to. */
export async function launch(modules, more = []) {
  const { chromium } = createRequire(join(modules, "package.json"))("playwright-core");
  const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  if (!executablePath) {
    throw new Error("there is no Chromium: apt-get install chromium");
  }
  return chromium.launch({ executablePath, headless: true, args: [...FLAGS, ...more] });
}
