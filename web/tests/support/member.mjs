// `acp-gateway connect`: a member of the fleet that runs the demo agent.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import path from "node:path";

const STOP_MS = 15_000;

export class Member {
  static start(gateway, name, key) {
    return new Member(gateway, name, key);
  }

  constructor(gateway, name, key) {
    const binary = path.resolve(process.env.ACP_GATEWAY_BIN);
    const url = `${gateway.origin.replace(/^http/, "ws")}/v1/fleet/connect`;
    const args = ["connect", "--url", url, "--name", name, "--", binary, "demo-agent"];
    const env = { PATH: process.env.PATH, HOME: gateway.folder, ACP_GATEWAY_KEY: key };
    this.log = [];
    this.child = spawn(binary, args, { stdio: ["ignore", "ignore", "pipe"], env });
    this.exited = once(this.child, "exit");
    createInterface({ input: this.child.stderr }).on("line", (line) => this.log.push(line));
  }

  async stop() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill("SIGTERM");
    const late = setTimeout(() => this.child.kill("SIGKILL"), STOP_MS);
    await this.exited;
    clearTimeout(late);
  }
}
