// Opens the page as a person would, with files by address, and takes pictures. Fails when something is not as it
// should be, or was said on the console as an error.
//
//     scripts/test_web.sh [PICTURES]
//
// Arguments: the page's folder, a folder with sample.results.parquet and sample.trace.safetensors, playwright's folder,
// and where pictures go.

import assert from "node:assert/strict";
import { join } from "node:path";
import { launch } from "./browser.mjs";
import { serve } from "./serve.mjs";

const [page, samples, modules, pictures] = process.argv.slice(2);
const server = await serve({ "/": page, "/samples/": samples });
const browser = await launch(modules);
const results = `${server.address}/?open=samples/sample.results.parquet`;

/** A fresh visitor at that address; everything on the console that is an error is kept. */
async function visit(address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "dark", ...options });
  const visitor = await context.newPage();
  const said = [];
  visitor.on("console", (line) => said.push(`${line.type()}: ${line.text()}`));
  visitor.on("pageerror", (error) => said.push(`error: ${error.message}`));
  await visitor.goto(address);
  return { visitor, said, end: () => context.close() };
}

const at = (visitor, point) =>
  visitor.waitForFunction((wanted) => document.documentElement.dataset.loka === wanted, point, { timeout: 60_000 });

async function pictures_of_both_grounds() {
  for (const colorScheme of ["dark", "light"]) {
    for (const [width, height] of [[1280, 800], [1920, 1080]]) {
      const { visitor, said, end } = await visit(results, { viewport: { width, height }, colorScheme });
      await at(visitor, "rows");
      await visitor.waitForTimeout(1_500);
      await visitor.screenshot({ path: join(pictures, `${colorScheme}-${width}.png`) });
      const marks = await visitor.evaluate(() =>
        Object.fromEntries(performance.getEntriesByType("mark").map((mark) => [mark.name, Math.round(mark.startTime)])),
      );
      const drawn = await visitor.evaluate(() => document.documentElement.dataset.lokaDrawsWith);
      console.log(`${colorScheme} ${width}x${height} by ${drawn}: first paint ${marks["loka-drawn"]} ms, first rows ${marks["loka-rows"]} ms`);
      assert.deepEqual(said.filter((line) => /^(error|warning)/.test(line)), []);
      await end();
    }
  }
}

await pictures_of_both_grounds();
await browser.close();
await server.close();
