// Starts the real gateway for a test and ends it: by its process and by no other name.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

const START_MS = 30_000;
const STOP_MS = 15_000;
/** Else the gateway reads a configuration file of the machine. */
const NO_CONFIG_FILE = { ACP_GATEWAY_CONFIG: "/dev/null" };

export class Gateway {
  /** `env`: more variables, by a function of the folder. */
  static async start({ config, env = () => ({}) } = {}) {
    const folder = await mkdtemp(path.join(tmpdir(), "acp-gateway-page-"));
    const gateway = new Gateway(folder);
    gateway.env = await env(folder);
    if (config) {
      gateway.configFile = path.join(folder, "gateway.toml");
      await writeFile(gateway.configFile, config);
    }
    await gateway.run("127.0.0.1:0");
    return gateway;
  }

  constructor(folder) {
    this.folder = folder;
    this.log = [];
  }

  /** The address that the page is opened by, without the key. */
  get origin() {
    return new URL(this.link).origin;
  }

  async run(listen) {
    const binary = process.env.ACP_GATEWAY_BIN;
    if (!binary) throw new Error("ACP_GATEWAY_BIN must name the gateway's binary");
    const args = ["--data", path.join(this.folder, "data"), "--listen", listen];
    if (this.configFile) args.push("--config", this.configFile);
    // Tests may run as root.
    const root = { ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS: "true" };
    const env = { PATH: process.env.PATH, HOME: this.folder, ...NO_CONFIG_FILE, ...root, ...this.env };
    this.child = spawn(path.resolve(binary), args, { stdio: ["ignore", "pipe", "pipe"], env });
    this.exited = once(this.child, "exit");
    createInterface({ input: this.child.stderr }).on("line", (line) => this.log.push(line));
    this.link = await this.#printedLink();
  }

  /** A link with a key that may do everything. */
  async adminLink() {
    return `${this.origin}/#key=${await this.key("ada", "read,prompt,approve,files,admin")}`;
  }

  /** Runs a command on the data of this gateway. Returns what it prints. */
  async command(...words) {
    const args = [...words, "--data", path.join(this.folder, "data")];
    if (this.configFile) args.push("--config", this.configFile);
    const env = { PATH: process.env.PATH, HOME: this.folder, ...NO_CONFIG_FILE };
    const { stdout } = await promisify(execFile)(path.resolve(process.env.ACP_GATEWAY_BIN), args, { env });
    return stdout.trim();
  }

  /** Creates a key with these scopes, and waits until the gateway accepts it. `more`: other arguments of the command. */
  async key(name, scopes, ...more) {
    const key = await this.command("key", "create", name, "--scopes", scopes, ...more);
    // A gateway that runs looks for new keys once a second.
    const deadline = Date.now() + 30_000;
    const known = async () => (await fetch(`${this.origin}/v1`, { headers: { Authorization: `Bearer ${key}` } })).status !== 401;
    while (!(await known())) {
      if (Date.now() > deadline) throw new Error("the gateway does not take the new key");
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return key;
  }

  /** As if the power had failed. */
  async kill() {
    this.child.kill("SIGKILL");
    await this.exited;
  }

  async restart() {
    await this.run(new URL(this.link).host);
  }

  /** A drain to its end. */
  async stop() {
    this.child.kill("SIGTERM");
    const late = setTimeout(() => this.child.kill("SIGKILL"), STOP_MS);
    await this.exited;
    clearTimeout(late);
  }

  async end() {
    if (this.child && this.child.exitCode === null && this.child.signalCode === null) await this.stop();
    await rm(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }

  #printedLink() {
    return new Promise((resolve, reject) => {
      const fail = (why) => reject(new Error(`${why}\n${this.log.join("\n")}`));
      const timer = setTimeout(() => fail("the gateway printed no link in time"), START_MS);
      createInterface({ input: this.child.stdout }).on("line", (line) => {
        const link = /https?:\/\/\S+#key=\S+/.exec(line);
        if (!link) return;
        clearTimeout(timer);
        resolve(link[0]);
      });
      this.child.once("error", fail);
      this.child.once("exit", (code, signal) => {
        clearTimeout(timer);
        fail(`the gateway ended (${code ?? signal}) before it printed a link`);
      });
    });
  }
}
