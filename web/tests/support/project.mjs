// A small project with a failing test, for sessions that work in a folder.

import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";

export const BROKEN = "/** Adds two numbers. */\nexport function add(a, b) {\n  return a - b;\n}\n";
export const FIXED = BROKEN.replace("a - b", "a + b");

/** Creates the project below the workspace root of the gateway, and returns its path. */
export async function project(gateway, name = "sums") {
  const folder = path.join(gateway.folder, "data", "workspaces", name);
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, "add.mjs"), BROKEN);
  const test = 'import assert from "node:assert/strict";\nimport { test } from "node:test";\nimport { add } from "./add.mjs";\n\ntest("adds", () => assert.equal(add(2, 3), 5));\n';
  await writeFile(path.join(folder, "add.test.mjs"), test);
  return folder;
}
