// The packages as another project gets them: built, packed, and installed into an empty project without a registry.

import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import react from "@vitejs/plugin-react";
import { build } from "vite";

const WEB = fileURLToPath(new URL("../../", import.meta.url));
const PACKAGES = ["packages/client", "packages/react"];
/** What the project of a person has beside them. */
const PEERS = ["react", "react-dom", "scheduler", "@types/react", "@types/react-dom", "csstype"].map((name) => `node_modules/${name}`);
const TYPES = { ".html": "text/html", ".js": "text/javascript" };
const RUN_MS = 120_000;

/** Runs a command. Its output is a part of the error. */
export async function run(command, args, cwd) {
  try {
    return (await promisify(execFile)(command, args, { cwd, timeout: RUN_MS })).stdout;
  } catch (error) {
    throw new Error(`${command} ${args.join(" ")}: ${error.stdout ?? ""}${error.stderr ?? ""}`, { cause: error });
  }
}

export class Project {
  /** A project with both packages. */
  static async create() {
    const project = new Project(await mkdtemp(path.join(tmpdir(), "acp-gateway-packed-")));
    await run("npm", ["run", "build:packages"], WEB);
    await run("npm", ["pack", "--ignore-scripts", "--pack-destination", project.folder, ...[...PACKAGES, ...PEERS].map((each) => `./${each}`)], WEB);
    const archives = (await readdir(project.folder)).filter((name) => name.endsWith(".tgz"));
    await writeFile(path.join(project.folder, "package.json"), '{ "name": "another-project", "private": true, "type": "module" }');
    const flags = ["--offline", "--no-audit", "--no-fund", "--ignore-scripts"];
    await run("npm", ["install", ...flags, ...archives.map((name) => `./${name}`)], project.folder);
    return project;
  }

  constructor(folder) {
    this.folder = folder;
  }

  async write(name, text) {
    await writeFile(path.join(this.folder, name), text);
  }

  /** Checks the types of the file `name` with a compiler of `web`. */
  async check(compiler, name, flags) {
    await run(process.execPath, [path.join(WEB, compiler, "bin/tsc"), "--noEmit", "--strict", ...flags, name], this.folder);
  }

  /** Builds the example of a package, and returns the folder. */
  async example(name) {
    const root = path.join(this.folder, `example-${name}`);
    await cp(path.join(WEB, "packages", name, "example"), root, { recursive: true });
    const outDir = path.join(this.folder, "site", name);
    await mkdir(outDir, { recursive: true });
    await build({ root, base: "./", configFile: false, logLevel: "warn", plugins: [react()], build: { outDir, emptyOutDir: true } });
    return outDir;
  }

  async remove() {
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** Serves a folder at an origin of its own. The policy permits the connection to `gateway()` and nothing else. */
export async function serve(folder, gateway) {
  const server = createServer((request, response) => {
    const name = path.join(folder, path.normalize(new URL(request.url, "http://x").pathname));
    response.setHeader("content-type", TYPES[path.extname(name)] ?? "application/octet-stream");
    response.setHeader("content-security-policy", `default-src 'none'; script-src 'self'; connect-src ${gateway()}`);
    const file = createReadStream(name);
    file.on("error", () => response.writeHead(404).end());
    file.pipe(response);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { origin: `http://localhost:${server.address().port}`, close: () => server.close() };
}
