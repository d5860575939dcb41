import preact from "@preact/preset-vite";
import { defineConfig } from "vitest/config";

// The API that `npm run dev` and `vite preview` pass requests on to.
const backend = process.env.COLDAISLE_API ?? "http://127.0.0.1:8000";
const proxy = Object.fromEntries(
  ["/api", "/health", "/docs", "/redoc", "/openapi.json"].map((path) => [path, backend]),
);

export default defineConfig({
  plugins: [preact()],
  build: {
    outDir: "site/built",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // light-dark()
    // No data: URLs and no inline script: the content security policy refuses both.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // What the first view needs is one file, which is smaller gzipped than its parts.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "index", tags: ["$initial"] }] } } },
  },
  server: { port: 5173, strictPort: true, proxy },
  preview: { proxy },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
