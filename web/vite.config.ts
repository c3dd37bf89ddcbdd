import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defaultClientConditions, defaultServerConditions } from "vite";
import { defineConfig } from "vitest/config";

/**
 * The address of the worker that highlights code. The build's own way makes a bundle of its own, whose packages the list of
 * licenses does not contain.
 */
const workerAddress: Plugin = {
  name: "worker-address",
  resolveId: (id) => (id === "virtual:worker-address" ? `\0${id}` : null),
  load(id) {
    if (id !== "\0virtual:worker-address") return null;
    const worker = this.emitFile({ type: "chunk", id: "src/highlight/worker.ts", name: "worker" });
    return `export default import.meta.ROLLUP_FILE_URL_${worker};`;
  },
};

export default defineConfig({
  // Relative addresses let the page live under any sub-path of a proxy.
  base: "./",
  // The packages are used as sources.
  resolve: { conditions: ["source", ...defaultClientConditions] },
  ssr: { resolve: { conditions: ["source", ...defaultServerConditions] } },
  plugins: [react(), workerAddress],
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    // The style sheet uses `light-dark()` as it is.
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    // Nothing may be inlined: the page's policy allows only its own files.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    license: { fileName: "licenses.md" },
    // The texts of `src/strings` are constants of one use each. Without this, each needs a variable.
    rolldownOptions: {
      optimization: { inlineConst: { mode: "all" } },
      // One script has all modules of the first load: two scripts compress worse, and each part that is loaded later would divide it.
      output: { codeSplitting: { groups: [{ name: "index", test: /src\/main\.tsx$/ }] } },
    },
  },
  test: { include: ["tests/unit/**/*.test.{ts,mjs}", "packages/*/tests/**/*.test.ts"], environment: "node" },
});
