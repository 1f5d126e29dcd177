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

/** WebGPU by software: what it draws is only seen when the browser puts its pages together by Vulkan too. */
export const WEBGPU = [
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--enable-features=Vulkan",
  "--use-vulkan=swiftshader",
];

function chromium(modules) {
  const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  if (!executablePath) {
    throw new Error("there is no Chromium: apt-get install chromium");
  }
  const { chromium: driven } = createRequire(join(modules, "package.json"))("playwright-core");
  return [driven, { executablePath, headless: true }];
}

/** `modules`: the folder that playwright-core was installed to. */
export function launch(modules, more = []) {
  const [driven, options] = chromium(modules);
  return driven.launch({ ...options, args: [...FLAGS, ...more] });
}

/** A browser with settings, as a person has it: one context in a window of its own. */
export function launchWithSettings(modules, more = []) {
  const [driven, options] = chromium(modules);
  return driven.launchPersistentContext("", { ...options, viewport: null, args: [...FLAGS, ...more] });
}
