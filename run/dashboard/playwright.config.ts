import { defineConfig } from "@playwright/test";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";

// The ways that people go through the page. `make test` tries these, and `make test-all` each part of it.
const short = ["incidents", "journey", "persons", "session", "truth"];
const nightly = process.env.LIGHTHOUSE ? [] : ["lighthouse"];

export default defineConfig({
  testDir: "e2e",
  testMatch: (process.env.SHORT ? short : ["*"]).map((name) => `**/${name}.spec.ts`),
  testIgnore: nightly.map((name) => `**/${name}.spec.ts`),
  // One system serves all tests. Four at once take as long on two cores.
  workers: 3,
  // Only what hangs takes so long, however busy the machine is.
  timeout: 300_000,
  expect: { timeout: 60_000 },
  globalSetup: "./e2e/system.ts",
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    viewport: { width: 1280, height: 900 },
    locale: "en-GB",
    timezoneId: "Europe/Berlin",
    launchOptions: {
      executablePath,
      args: [
        "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
      ],
    },
  },
});
