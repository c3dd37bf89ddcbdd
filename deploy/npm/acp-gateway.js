#!/usr/bin/env node
// Runs the program of the package for this platform.

"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `@acp-gateway/${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/acp-gateway`);
} catch {
  console.error(`acp-gateway: the package ${name} is not installed. acp-gateway runs on Linux (x64 and arm64); npm must install optional dependencies.`);
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A signal may reach both processes. The gateway counts signals within a second of the first one only once.
for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`acp-gateway: could not run ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
