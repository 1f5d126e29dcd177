// Measures the page as a person meets it: how soon it is there, and what a frame costs its main thread while somebody
// scrolls, pulls the threshold and types a filter.
//
//     scripts/bench_web.sh [FRAMES]
//
// Arguments: the page's folder, a folder with sample.results.parquet and big.results.parquet, playwright's folder, how
// many frames a gesture takes, and a part of a measure's name, as it is printed, to run those alone.
//
// CPU time of a frame is Chromium's own: the clock of the page's main thread around the animation frame's callback,
// into which every gesture's input is fed. The product has no code for it.

import { launch } from "./browser.mjs";
import { serve } from "./serve.mjs";

const [page, samples, modules, frames = "60", part = ""] = process.argv.slice(2);
const SIZES = [[1280, 800], [1920, 1080]];
const SMOOTH_MS = 1000 / 60;
const STARTS = 5;
const server = await serve({ "/": page, "/samples/": samples });

/** Runs in the page before anything else: notes points in time, and feeds one input into every frame while asked to. */
function watch() {
  const seen = { points: {}, feed: null, frames: [] };
  globalThis.bench = seen;
  const note = (point) => (seen.points[point] ??= performance.now());
  const ask = requestAnimationFrame.bind(globalThis);
  globalThis.requestAnimationFrame = (callback) => {
    // The workbench asks for frames as soon as it has what it draws with.
    note("device");
    return ask((time) => {
      seen.frames.push(time);
      seen.feed?.(seen.frames.length);
      callback(time);
      note("frame");
    });
  };
  const compile = WebAssembly.instantiateStreaming;
  WebAssembly.instantiateStreaming = async (...all) => {
    const made = await compile.apply(WebAssembly, all);
    note("compiled");
    return made;
  };
}

async function visit(browser, file, [width, height], more = "") {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: "dark" });
  const visitor = await context.newPage();
  await visitor.addInitScript(watch);
  await visitor.goto(`${server.address}/?open=samples/${file}.results.parquet${more}`);
  await visitor.waitForFunction(() => document.documentElement.dataset.loka === "rows", null, { timeout: 120_000 });
  return visitor;
}

const share = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
const median = (values) => share([...values].sort((a, b) => a - b), 0.5);

/** When the page came to its points, the median of some fresh browsers; milliseconds from the navigation's start. */
async function start(file, size) {
  const all = [];
  for (let left = STARTS; left > 0; left -= 1) {
    const browser = await launch(modules);
    const visitor = await visit(browser, file, size);
    all.push(await visitor.evaluate(() => {
      const came = (part) => performance.getEntriesByType("resource").find((entry) => entry.name.endsWith(part))?.responseEnd;
      const marked = (name) => performance.getEntriesByName(name)[0]?.startTime;
      const { points } = globalThis.bench;
      return {
        "first paint": marked("first-contentful-paint"),
        "program here": came(".wasm"),
        compiled: points.compiled,
        device: points.device,
        "first frame": points.frame,
        "file here": came(".parquet"),
        "first rows": marked("loka-rows"),
      };
    }));
    await browser.close();
  }
  return Object.keys(all[0]).map((point) => [point, median(all.map((of) => of[point]))]);
}

/** Where things are, from a visit that may ask: being asked costs, and is not measured. */
async function places(browser, size) {
  const visitor = await visit(browser, "big", size, "&drive");
  await visitor.waitForTimeout(1_000);
  const look = await (await visitor.waitForFunction(() => globalThis.loka.look(), null, { timeout: 0 })).jsonValue();
  await visitor.context().close();
  const { nodes } = JSON.parse(look);
  const middle = (role, label) => {
    const found = nodes.find((node) => node.role === role && label.test(node.label ?? ""));
    if (!found) {
      const others = nodes.filter((node) => node.role === role).map((node) => node.label);
      throw new Error(`there is no ${role} ${label} in the page, but: ${others.join(", ")}`);
    }
    const [left, top, right, bottom] = found.bounds;
    return [(left + right) / 2, (top + bottom) / 2];
  };
  const [filter, medians] = [middle("TextInput", /^Filter sites$/), middle("CheckBox", /^Medians of modules$/)];
  return {
    filter,
    // The first bound of whatever policy is in force.
    threshold: middle("SpinButton", /≤/),
    sites: [filter[0], filter[1] + 200],
    heatmap: [medians[0] + 200, medians[1] + 220],
  };
}

/** In the page: from now on every frame gets one event of that kind. */
function feed([kind, [x, y], step, count]) {
  const canvas = document.getElementById("loka");
  const at = (type, more) => ({ clientX: x, clientY: y, bubbles: true, cancelable: true, button: 0, ...more, type });
  const send = (Kind, type, more) => canvas.dispatchEvent(new Kind(type, at(type, more)));
  const { bench } = globalThis;
  return new Promise((done) => {
    let left = count;
    bench.feed = () => {
      left -= 1;
      if (left < 0) {
        bench.feed = null;
        done();
      } else if (kind === "wheel") {
        send(WheelEvent, "wheel", { deltaY: step });
      } else {
        send(MouseEvent, "mousemove", { clientX: x + step * Math.sin(left / 10) });
      }
    };
  });
}

const GESTURES = {
  async "scroll the sites"(visitor, { sites }) {
    await visitor.mouse.move(...sites);
    return () => visitor.evaluate(feed, ["wheel", sites, 60, Number(frames)]);
  },
  async "scroll the heatmap"(visitor, { heatmap }) {
    await visitor.mouse.move(...heatmap);
    return () => visitor.evaluate(feed, ["wheel", heatmap, 60, Number(frames)]);
  },
  async "hover the heatmap"(visitor, { heatmap }) {
    await visitor.mouse.move(...heatmap);
    return () => visitor.evaluate(feed, ["move", heatmap, 80, Number(frames)]);
  },
  async "pull the threshold"(visitor, { threshold }) {
    await visitor.mouse.move(...threshold);
    await visitor.mouse.down();
    return async () => {
      await visitor.evaluate(feed, ["move", threshold, 40, Number(frames)]);
      await visitor.mouse.up();
    };
  },
  async "type a filter"(visitor, { filter }) {
    await visitor.mouse.click(...filter);
    return async () => {
      for (const character of "layers.12 attention") {
        await visitor.keyboard.press(character === " " ? "Space" : character);
        await visitor.waitForTimeout(100);
      }
    };
  },
};

/** Chromium's notes of what the page's main thread did meanwhile. */
async function traced(visitor, doing) {
  const session = await visitor.context().newCDPSession(visitor);
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  const traceConfig = { includedCategories: ["devtools.timeline"], excludedCategories: ["*"] };
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig });
  await doing();
  const complete = new Promise((ready) => session.once("Tracing.tracingComplete", ready));
  await session.send("Tracing.end");
  await complete;
  return events;
}

async function frame(browser, name, size, where) {
  const visitor = await visit(browser, "big", size);
  await visitor.waitForTimeout(1_500);
  const doing = await GESTURES[name](visitor, where);
  await visitor.waitForTimeout(1_000);
  const asked = await browser.newBrowserCDPSession();
  const drawing = async () => {
    const { processInfo } = await asked.send("SystemInfo.getProcessInfo");
    return processInfo.find(({ type }) => type === "GPU").cpuTime;
  };
  const [before, start] = [await drawing(), performance.now()];
  const events = await traced(visitor, doing);
  const [drawn, took] = [(await drawing()) - before, performance.now() - start];
  await visitor.context().close();
  // What asked for nothing drew nothing.
  const of = events.filter((event) => event.name === "FireAnimationFrame" && event.tdur > 500);
  const cpu = of.map((event) => event.tdur / 1000).sort((a, b) => a - b);
  return {
    frames: cpu.length,
    median: share(cpu, 0.5),
    p95: share(cpu, 0.95),
    p99: share(cpu, 0.99),
    max: cpu.at(-1),
    late: cpu.filter((ms) => ms > SMOOTH_MS).length / cpu.length,
    wall: median(of.map((event) => event.dur / 1000)),
    drawing: (1000 * drawn) / cpu.length,
    fps: (1000 * cpu.length) / took,
  };
}

const cell = (value) => (value === undefined ? "" : value.toFixed(value < 100 ? 1 : 0));

/** Whether that measure is asked for. */
const wanted = (name, size) => `${name} ${size.join("x")}`.includes(part);

for (const file of ["sample", "big"]) {
  for (const size of SIZES.filter((size) => wanted(`start ${file}`, size))) {
    const points = await start(file, size);
    console.log(`start ${file} ${size.join("x")}: ${points.map(([point, ms]) => `${point} ${cell(ms)}`).join(", ")} ms`);
  }
}
for (const size of SIZES) {
  const names = Object.keys(GESTURES).filter((name) => wanted(name, size));
  if (names.length === 0) {
    continue;
  }
  const browser = await launch(modules);
  const where = await places(browser, size);
  for (const name of names) {
    const of = await frame(browser, name, size, where);
    console.log(
      `${name} ${size.join("x")}: ${of.frames} frames, CPU ms median ${cell(of.median)}, p95 ${cell(of.p95)}, p99 ${cell(of.p99)}, ` +
        `max ${cell(of.max)}, over 16.7 ms ${(100 * of.late).toFixed(1)} %; by the wall ${cell(of.wall)} ms, ` +
        `drawing by software ${cell(of.drawing)} ms a frame, ${cell(of.fps)} frames a second`,
    );
  }
  await browser.close();
}
await server.close();
