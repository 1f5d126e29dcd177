// Loads the workbench: shows how far it is, and in a line why it cannot start. What comes after the first frame is
// the workbench's own (app/src/page).

const cover = document.getElementById("loka-cover");
const status = document.getElementById("loka-status");
const advice = document.getElementById("loka-advice");
const progress = document.getElementById("loka-progress");
const amount = document.getElementById("loka-amount");

/** Puts a line on the page in the place of what was there. */
function fail(line, next) {
  document.documentElement.dataset.loka = "failed";
  cover.hidden = false;
  cover.classList.add("failed");
  progress.hidden = true;
  amount.hidden = true;
  status.textContent = line;
  advice.textContent = next ?? "";
  advice.hidden = !next;
}

/** The workbench came to this point: "drawn", then "rows". */
function reached(point) {
  performance.mark(`loka-${point}`);
  // What was drawn is seen with the next frame.
  requestAnimationFrame(() => {
    if (document.documentElement.dataset.loka !== "failed") {
      cover.hidden = true;
      document.documentElement.dataset.loka = point;
    }
  });
}

/** An end without a panic, of which the workbench could not tell: there was no memory left. */
function ended({ error, reason }) {
  if ((error ?? reason) instanceof WebAssembly.RuntimeError && document.documentElement.dataset.loka !== "failed") {
    fail("The workbench ended: the browser gave it no more memory.", "Load the page again and open a smaller file, or open this one with the loka program.");
  }
}
addEventListener("error", ended);
addEventListener("unhandledrejection", ended);

const CURRENT = "Turn on hardware acceleration in its settings, or use a current Chrome, Edge, Firefox or Safari.";

const NOTHING = "This browser has neither WebGPU nor WebGL 2, which the workbench draws with.";
const hasWebGl = () => Boolean(document.createElement("canvas").getContext("webgl2"));

/** A browser may know WebGPU and have no device for it. WebGL is asked last: a context made only to see whether it can be
 * made costs its time. */
async function canDraw() {
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  return Boolean(adapter) || hasWebGl();
}

function cannotDraw(reason) {
  fail(hasWebGl() ? `The workbench cannot draw here: ${reason}` : NOTHING, CURRENT);
}
document.getElementById("loka").addEventListener("webglcontextlost", () => {
  if (document.documentElement.dataset.loka !== "failed") {
    fail("The workbench cannot draw any longer: the browser took the graphics device away.", "Load the page again: settings and address are kept.");
  }
});

// The workbench calls these (app/src/page).
globalThis.loka = { fail, reached, cannotDraw };

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

/** The response as it was, telling how much of it is here. */
function counted(response) {
  const total = Number(document.querySelector('meta[name="loka-bytes"]').content);
  let [here, shown] = [0, 0];
  const count = new TransformStream({
    transform(chunk, onward) {
      here += chunk.byteLength;
      // A local server sends it in hundreds of pieces.
      if (total > 0 && performance.now() - shown > 50) {
        shown = performance.now();
        progress.value = Math.min(here / total, 1);
        amount.textContent = `${megabytes(Math.min(here, total))} of ${megabytes(total)} MB`;
      }
      onward.enqueue(chunk);
    },
  });
  return new Response(response.body.pipeThrough(count), { headers: { "Content-Type": "application/wasm" } });
}

/** A page that stands for itself (scripts/build_demo.sh) names what it opens where the address asks for nothing. */
function fill() {
  const query = new URLSearchParams(location.search);
  const files = document.querySelector('meta[name="loka-open"]').content.split(" ").filter(Boolean);
  if (files.length > 0 && !query.has("open")) {
    files.forEach((file) => query.append("open", file));
    history.replaceState(null, "", `?${query}${location.hash}`);
  }
}

/** Files that the address asks for come while the program does, which opens them. */
function ask() {
  for (const file of new URLSearchParams(location.search).getAll("open")) {
    const link = document.createElement("link");
    Object.assign(link, { rel: "preload", as: "fetch", crossOrigin: "anonymous", fetchPriority: "low", href: file });
    document.head.append(link);
  }
}

async function start() {
  if (typeof WebAssembly !== "object") {
    fail("This browser runs no WebAssembly, which the workbench is built as.", CURRENT);
    return;
  }
  // While megabytes come, which the page's head has asked for, not after them: the rest is not fetched.
  canDraw().then((can) => {
    if (!can) {
      fail(NOTHING, CURRENT);
      stop();
    }
  });
  fill();
  ask();
  try {
    const [{ default: init }, response] = await Promise.all([import("./loka.js"), fetch("loka_bg.wasm")]);
    if (!response.ok) {
      throw new Error(`the server answered ${response.status} for loka_bg.wasm`);
    }
    await init({ module_or_path: counted(response) });
  } catch (error) {
    // What panicked has put its own line there.
    if (document.documentElement.dataset.loka !== "failed") {
      fail(`The workbench could not be loaded: ${error.message ?? error}`, "Load the page again; if that does not help, its files are not all in one place.");
    }
  }
}

start();
