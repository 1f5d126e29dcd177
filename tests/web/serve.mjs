// A static server on 127.0.0.1 for tests: folders under prefixes, packed files where the browser takes them, and
// nothing else.

import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
};

/** `folders`: prefix to folder, as { "/": "web", "/files/": "samples" }. Gives its address and how to end it. */
export async function serve(folders) {
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
    const prefix = Object.keys(folders).sort((a, b) => b.length - a.length).find((of) => path.startsWith(of));
    const inside = normalize(`/${path.slice(prefix.length)}`);
    const file = join(folders[prefix], inside === "/" ? "index.html" : inside);
    if (!existsSync(file) || !statSync(file).isFile()) {
      response.writeHead(404).end();
      return;
    }
    const headers = { "Content-Type": TYPES[extname(file)] ?? "application/octet-stream" };
    const packed = existsSync(`${file}.gz`) && /\bgzip\b/.test(request.headers["accept-encoding"] ?? "");
    if (packed) {
      headers["Content-Encoding"] = "gzip";
    }
    const sent = packed ? `${file}.gz` : file;
    response.writeHead(200, { ...headers, "Content-Length": statSync(sent).size });
    createReadStream(sent).pipe(response);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
  return { address: `http://127.0.0.1:${server.address().port}`, close };
}
