// Opens the demo as a visitor would: below some address of a static host, by a link that names nothing. Fails when the sample is not
// there with its rows, when anything is asked for that is not there or lies elsewhere, or when the exported plan is not the program's.
//
//     scripts/test_demo.sh [PICTURES]
//
// Arguments: the demo's folder, the loka program, playwright's folder, where pictures go.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { launch } from "./browser.mjs";
import { serve } from "./serve.mjs";

const [demo, loka, modules, pictures] = process.argv.slice(2);
const SAMPLE = "dcnv2-ranker";
const server = await serve({ "/team/fp8/": demo });
const browser = await launch(modules);
const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "dark" });
const page = await context.newPage();
const problems = [];
page.on("console", (line) => {
  // Warnings of ours; browsers warn of what is theirs.
  if (line.type() === "error" || (line.type() === "warning" && line.text().startsWith("LoKA"))) {
    problems.push(line.text());
  }
});
page.on("pageerror", (error) => problems.push(error.message));
page.on("request", (request) => {
  if (!/^(blob|data):/.test(request.url()) && !request.url().startsWith(`${server.address}/team/fp8/`)) {
    problems.push(`asked elsewhere: ${request.url()}`);
  }
});
page.on("response", (response) => {
  if (response.status() >= 400) {
    problems.push(`${response.status()}: ${response.url()}`);
  }
});

await page.goto(`${server.address}/team/fp8/`);
await page.waitForFunction(() => document.documentElement.dataset.loka === "rows", null, { timeout: 120_000 });
const rows = await page.evaluate(() => Math.round(performance.getEntriesByName("loka-rows")[0].startTime));
console.log(`  first rows of the sample after ${rows} ms`);
// What the canvas shows, as text: the answer, in which the plan pays, and the sites.
await page.waitForFunction(() => {
  const told = document.getElementById("loka-text").innerText;
  return told.includes("stack.tower.3") && /1\.2\d\s*[x×]/.test(told);
}, null, { timeout: 60_000 });
await page.waitForTimeout(1_500);
await page.screenshot({ path: join(pictures, "demo.png") });

// It is the workbench: the plan comes out as the program's own, and fits the rows.
await page.keyboard.press("Control+e");
await page.waitForTimeout(1_500);
const [download] = await Promise.all([page.waitForEvent("download", { timeout: 60_000 }), page.keyboard.press("Enter")]);
const plan = join(pictures, "demo.plan.json");
await download.saveAs(plan);
execFileSync(loka, ["check", plan, "--results", join(demo, "samples", `${SAMPLE}.results.parquet`)], { stdio: "pipe" });
const { totals } = JSON.parse(readFileSync(plan, "utf8"));
assert.ok(totals.speedup > 1.1, `the sample's plan is ${totals.speedup}x`);
console.log(`  its plan: ${totals.speedup.toFixed(2)}x`);

// An address that asks for something else is obeyed.
await page.goto(`${server.address}/team/fp8/?open=samples/${SAMPLE}.results.parquet`);
await page.waitForFunction(() => document.documentElement.dataset.loka === "rows", null, { timeout: 120_000 });
assert.equal(new URL(page.url()).searchParams.getAll("open").length, 1);
assert.deepEqual(problems, []);
await browser.close();
await server.close();
console.log("the demo works");
