// Opens the page as a person would and takes pictures. Fails when something is not as it should be, or was said on the
// console as an error.
//
//     scripts/test_web.sh [PICTURES]
//
// Arguments: the page's folder, a folder with sample.trace.safetensors and its sample.results.parquet, the loka program,
// playwright's folder, where pictures go, and a part of a scenario's name to run those alone.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { launch, launchWithSettings, WEBGPU } from "./browser.mjs";
import { serve } from "./serve.mjs";

const [page, samples, loka, modules, pictures, part = ""] = process.argv.slice(2);
const RESULTS = "?open=samples/sample.results.parquet";
const server = await serve({ "/": page, "/samples/": samples });
let browser = await launch(modules);

/** A fresh visitor at that address, and what the console said. */
async function visit(address, options = {}, by = browser) {
  const context = await by.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "dark", ...options });
  const visitor = await context.newPage();
  const said = [];
  visitor.on("console", (line) => said.push(`${line.type()}: ${line.text()}`));
  visitor.on("pageerror", (error) => said.push(`error: ${error.message}`));
  await visitor.goto(`${server.address}/${address}`);
  return { visitor, said, end: () => context.close() };
}

/** Waits until the page came to that point. */
function reached(visitor, point) {
  const arrived = (wanted) => document.documentElement.dataset.loka === wanted;
  return visitor.waitForFunction(arrived, point, { timeout: 60_000 });
}

/** Errors, and warnings of ours: browsers warn of what is theirs. */
const problems = (said) => said.filter((line) => line.startsWith("error") || line.startsWith("warning: LoKA"));

async function eventually(test, line) {
  for (let left = 100; left > 0; left -= 1) {
    if (await test()) {
      return;
    }
    await new Promise((later) => setTimeout(later, 100));
  }
  assert.fail(line);
}

const picture = (visitor, name) => visitor.screenshot({ path: join(pictures, `${name}.png`) });

/** Does an action by its name. Drawn by software a frame takes its time, and the palette takes characters from its first
 * frame on. */
async function act(visitor, name) {
  await visitor.keyboard.press("Control+k");
  await visitor.waitForTimeout(2_000);
  await visitor.keyboard.type(name);
  await visitor.waitForTimeout(1_000);
  await visitor.keyboard.press("Enter");
}

/** What the page tells of itself; its address has `drive` in it. */
async function look(visitor) {
  return JSON.parse(await (await visitor.waitForFunction(() => globalThis.loka.look?.(), null, { timeout: 30_000 })).jsonValue());
}

/** The share of pixels in which two pictures differ by more than a rounding. */
async function difference(visitor, pictures) {
  const coded = pictures.map((png) => png.toString("base64"));
  return visitor.evaluate(async (coded) => {
    const pixels = async (text) => {
      const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
      const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
      const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
      context.drawImage(image, 0, 0);
      return context.getImageData(0, 0, image.width, image.height).data;
    };
    const [a, b] = await Promise.all(coded.map(pixels));
    let differ = 0;
    for (let at = 0; at < a.length; at += 4) {
      differ += [0, 1, 2].some((channel) => Math.abs(a[at + channel] - b[at + channel]) > 2);
    }
    return a.length === b.length ? differ / (a.length / 4) : 1;
  }, coded);
}

const SCENARIOS = {
  async "both grounds, two sizes"() {
    for (const colorScheme of ["dark", "light"]) {
      for (const [width, height] of [[1280, 800], [1920, 1080]]) {
        const { visitor, said, end } = await visit(RESULTS, { viewport: { width, height }, colorScheme });
        await reached(visitor, "rows");
        const marks = await visitor.evaluate(() =>
          Object.fromEntries(performance.getEntriesByType("mark").map((mark) => [mark.name, Math.round(mark.startTime)])),
        );
        const way = await visitor.evaluate(() => document.documentElement.dataset.lokaDrawsWith);
        console.log(`  ${colorScheme} ${width}x${height}, ${way}: first paint ${marks["loka-drawn"]} ms, first rows ${marks["loka-rows"]} ms`);
        await visitor.waitForTimeout(1_000);
        await picture(visitor, `${colorScheme}-${width}`);
        assert.deepEqual(problems(said), []);
        await end();
      }
    }
  },

  async "high density"() {
    // A flag: the pixels of an emulated screen are not told to the page.
    const dense = await launch(modules, ["--force-device-scale-factor=2", "--window-size=900,700"]);
    const { visitor, said, end } = await visit(RESULTS, { viewport: null }, dense);
    await reached(visitor, "rows");
    await visitor.waitForTimeout(1_000);
    const [pixels, width] = await visitor.evaluate(() => [document.getElementById("loka").width, innerWidth]);
    assert.equal(pixels, 2 * width);
    await picture(visitor, "high-density");
    assert.deepEqual(problems(said), []);
    await end();
    await dense.close();
  },

  async "the browser's zoom"() {
    const person = await launchWithSettings(modules, ["--window-size=1280,900"]);
    const visitor = await person.newPage();
    await visitor.goto(`${server.address}/${RESULTS}&drive`);
    await reached(visitor, "rows");
    const state = async () => {
      const [width, pixels] = await visitor.evaluate(() => [innerWidth, document.getElementById("loka").width]);
      const { pixels_per_point: scale, size } = await look(visitor);
      return { width, pixels, scale, points: size[0] };
    };
    const before = await state();
    const settings = await person.newPage();
    await settings.goto("chrome://settings/");
    await settings.evaluate(() => chrome.settingsPrivate.setDefaultZoom(1.5));
    await visitor.bringToFront();
    await eventually(async () => (await state()).scale === 1.5 * before.scale, "text is not larger");
    const { width, pixels, points } = await state();
    // As sharp as before, pixel for pixel of the screen, and nothing is cut off.
    assert.deepEqual([pixels, Math.round(before.width / 1.5)], [before.pixels, width]);
    assert.ok(Math.abs(points - width) < 1, `${points} points on ${width}`);
    await visitor.waitForTimeout(1_000);
    await picture(visitor, "zoom");
    await person.close();
  },

  async "a finger scrolls the sites"() {
    const options = { viewport: { width: 1280, height: 600 }, hasTouch: true };
    const { visitor, said, end } = await visit(`${RESULTS}&drive#site=net.top.2`, options);
    await reached(visitor, "rows");
    await visitor.waitForTimeout(1_500);
    const place = async () => (await look(visitor)).nodes.find(({ label }) => label === "net.layers.2.fmb.mlp.0")?.bounds[1];
    const before = await place();
    const session = await visitor.context().newCDPSession(visitor);
    // The first gesture of all; slowly, for frames are few here.
    const gesture = { x: 90, y: 250, yDistance: 120, speed: 60, gestureSourceType: "touch" };
    await session.send("Input.synthesizeScrollGesture", gesture);
    await visitor.waitForTimeout(1_000);
    const moved = (await place()) - before;
    assert.ok(moved > 60 && moved < 180, `the list moved by ${moved}`);
    await picture(visitor, "touch");
    assert.deepEqual(problems(said), []);
    await end();
  },

  async "WebGPU draws what WebGL 2 does"() {
    const other = await launch(modules, WEBGPU);
    for (const view of ["heatmap", "quadrant"]) {
      const pictures = [];
      let way;
      for (const by of [other, browser]) {
        const { visitor, said, end } = await visit(`${RESULTS}#site=net.layers.3.fmb.mlp.6&view=${view}`, {}, by);
        await reached(visitor, "rows");
        way ??= await visitor.evaluate(() => document.documentElement.dataset.lokaDrawsWith);
        await visitor.waitForTimeout(3_000);
        pictures.push(await picture(visitor, `${view}-${pictures.length ? "webgl" : "webgpu"}`));
        assert.deepEqual(problems(said), []);
        await end();
      }
      if (way !== "WebGPU") {
        console.log(`  skipped: this Chromium has no adapter for WebGPU (it drew with ${way})`);
        break;
      }
      const judge = await browser.newPage();
      const differ = await difference(judge, pictures);
      await judge.close();
      console.log(`  ${view}: ${(100 * differ).toFixed(3)} % of the pixels differ`);
      assert.ok(differ < 0.001, `${view}: ${differ}`);
    }
    await other.close();
  },

  async "the empty page"() {
    const { visitor, said, end } = await visit("");
    await reached(visitor, "drawn");
    await visitor.waitForTimeout(500);
    await picture(visitor, "empty");
    assert.deepEqual(problems(said), []);
    await end();
  },

  async "plan and results come out as the program's own"() {
    const { visitor, said, end } = await visit(RESULTS);
    await reached(visitor, "rows");
    const files = {};
    for (const [key, name] of [["Control+e", "sample.plan.json"], ["Control+s", "sample.results.parquet"]]) {
      await visitor.keyboard.press(key);
      await visitor.waitForTimeout(700);
      await picture(visitor, `save-${name}`);
      const [download] = await Promise.all([visitor.waitForEvent("download"), visitor.keyboard.press("Enter")]);
      assert.equal(download.suggestedFilename(), name);
      files[name] = join(pictures, `page.${name}`);
      await download.saveAs(files[name]);
    }
    const [plan, rows] = Object.values(files);
    execFileSync(loka, ["check", plan, "--results", rows], { stdio: "pipe" });
    execFileSync(loka, ["check", plan, "--results", join(samples, "sample.results.parquet")], { stdio: "pipe" });
    assert.match(JSON.parse(readFileSync(plan, "utf8")).created_at, /^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    assert.deepEqual(problems(said), []);
    await end();
  },

  async "files are dropped"() {
    const { visitor, said, end } = await visit("");
    await reached(visitor, "drawn");
    await visitor.evaluate(async () => {
      const files = new DataTransfer();
      for (const name of ["sample.results.parquet", "sample.trace.safetensors"]) {
        const bytes = await (await fetch(`samples/${name}`)).arrayBuffer();
        files.items.add(new File([bytes], name));
      }
      const drop = new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true });
      document.getElementById("loka").dispatchEvent(drop);
    });
    await reached(visitor, "rows");
    await visitor.waitForTimeout(2_000);
    await picture(visitor, "dropped");
    assert.deepEqual(problems(said), []);
    await end();
  },

  async "files are picked"() {
    const { visitor, end } = await visit("");
    await reached(visitor, "drawn");
    await visitor.setInputFiles("#loka-files", join(samples, "sample.results.parquet"));
    await reached(visitor, "rows");
    await end();
  },

  async "an address holds what is seen"() {
    const wanted = "site=net.layers.0.fmb.mlp.0&view=quadrant&metric=rel_l2&gemm=fprop&filter=mlp";
    const { visitor, said, end } = await visit(`${RESULTS}#${wanted}`);
    await reached(visitor, "rows");
    const hash = () => visitor.evaluate(() => location.hash.slice(1));
    await eventually(async () => (await hash()) === wanted, "the address is not kept");
    await visitor.waitForTimeout(500);
    await picture(visitor, "address");
    await visitor.evaluate(() => (location.hash = "site=net.top.0&view=plan&filter="));
    const second = "site=net.top.0&view=plan&metric=rel_l2&gemm=fprop";
    await eventually(async () => (await hash()) === second, "a pasted address is not followed");
    await visitor.goBack();
    await eventually(async () => (await hash()) === wanted, "Back is not followed");
    await visitor.evaluate(() => (location.hash = "site=nowhere"));
    const told = "warning: LoKA: The address names a site that this trace does not have: nowhere";
    await eventually(() => said.includes(told), "an unknown site is not told");
    await end();
  },

  async "the link is copied"() {
    const { visitor, end } = await visit(RESULTS, { permissions: ["clipboard-read", "clipboard-write"] });
    await reached(visitor, "rows");
    await act(visitor, "copy link");
    const copied = () => visitor.evaluate(() => navigator.clipboard.readText());
    await eventually(async () => (await copied()).includes(`${RESULTS}#site=`), "no link is on the clipboard");
    await end();
  },

  async "pictures are saved"() {
    const { visitor, said, end } = await visit(RESULTS);
    await reached(visitor, "rows");
    for (const [format, magic] of [["png", "\x89PNG"], ["svg", "<svg"]]) {
      await act(visitor, `save view as ${format}`);
      const coming = visitor.waitForEvent("download");
      let download;
      // The dialog takes Enter from its first frame on; before it, Enter shows the site, which is there already.
      await eventually(async () => {
        await visitor.keyboard.press("Enter");
        download = await Promise.race([coming, visitor.waitForTimeout(2_000)]);
        return download;
      }, `no ${format} came`);
      const file = join(pictures, `heatmap.${format}`);
      await download.saveAs(file);
      assert.ok(readFileSync(file, "latin1").includes(magic), format);
    }
    assert.deepEqual(problems(said), []);
    await end();
  },

  async "the browser keeps its keys"() {
    const { visitor, end } = await visit(RESULTS);
    await reached(visitor, "rows");
    const taken = (key, more) =>
      visitor.evaluate(([key, more]) => {
        const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more });
        document.activeElement.dispatchEvent(event);
        return event.defaultPrevented;
      }, [key, more]);
    for (const key of ["=", "+", "-", "0", "w", "t", "n", "r", "l", "p", "f", "Tab"]) {
      assert.equal(await taken(key, { ctrlKey: true }), false, `Ctrl+${key} is the browser's`);
    }
    assert.equal(await taken("ArrowLeft", { altKey: true }), false, "Alt+Left goes back");
    assert.equal(await taken("F5"), false);
    for (const key of ["k", "s", "e", "o"]) {
      assert.equal(await taken(key, { ctrlKey: true }), true, `Ctrl+${key} is the workbench's`);
      await visitor.keyboard.press("Escape");
    }
    await end();
  },

  async "settings outlive the page"() {
    const { visitor, end } = await visit(RESULTS);
    await reached(visitor, "rows");
    await visitor.keyboard.press("l");
    const stored = () => visitor.evaluate(() => JSON.parse(localStorage.getItem("loka.settings") ?? "{}").ground);
    await eventually(async () => (await stored()) === "light", "the ground is not stored");
    await visitor.reload();
    await reached(visitor, "rows");
    await visitor.waitForTimeout(500);
    await picture(visitor, "settings");
    await end();
  },

  async "what cannot be opened is a line"() {
    const open = ["none.results.parquet", "package.json"].map((name) => `open=samples/${name}`).join("&");
    const { visitor, said, end } = await visit(`?${open}&open=http://127.0.0.1:9/x.plan.json`);
    await reached(visitor, "drawn");
    const line = (part) => eventually(() => said.some((text) => text.startsWith("warning: LoKA") && text.includes(part)), part);
    await line("the server answered 404 Not Found: http");
    await visitor.waitForTimeout(500);
    await picture(visitor, "refused");
    await end();
  },

  async "an end is a line"() {
    const { visitor, end } = await visit(RESULTS);
    await reached(visitor, "rows");
    // As the browser tells of a module that ran out of memory.
    await visitor.evaluate(() => dispatchEvent(new ErrorEvent("error", { error: new WebAssembly.RuntimeError("unreachable") })));
    await reached(visitor, "failed");
    assert.match(await visitor.innerText("#loka-status"), /no more memory/);
    await picture(visitor, "ended");
    await end();
  },

  async "without JavaScript"() {
    const { visitor, end } = await visit("", { javaScriptEnabled: false });
    assert.match(await visitor.innerText("noscript"), /turn on JavaScript/);
    await picture(visitor, "no-javascript");
    await end();
  },

  async "without WebGPU and WebGL"() {
    await browser.close();
    browser = await launch(modules, ["--disable-3d-apis"]);
    const context = await browser.newContext();
    const visitor = await context.newPage();
    // Of the program's megabytes nothing ever comes: one is told all the same.
    await visitor.route("**/*.wasm", () => {});
    await visitor.goto(server.address, { waitUntil: "commit" });
    await reached(visitor, "failed");
    assert.match(await visitor.innerText("#loka-status"), /neither WebGPU nor WebGL 2/);
    await picture(visitor, "no-webgl");
    await context.close();
  },
};

for (const [name, scenario] of Object.entries(SCENARIOS).filter(([name]) => name.includes(part))) {
  console.log(name);
  await scenario();
}
await browser.close();
await server.close();
