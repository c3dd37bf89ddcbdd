import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

export default defineConfig({
  // Relative addresses let the page live under any sub-path of a proxy.
  base: "./",
  plugins: [react()],
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    // Nothing may be inlined: the page's policy allows only its own files.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    license: { fileName: "licenses.md" },
  },
  test: { include: ["tests/unit/**/*.test.ts"], environment: "node" },
});
