import { defineConfig } from "@playwright/test";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";

// What takes longest, most of it waits for timers of the page: `make test` leaves it to `make test-all`.
const long = ["chunks", "clock", "idle", "overview", "pages", "phone", "press", "report", "requests", "soak", "speed",
  "temperature", "told", "wall"];
const nightly = process.env.LIGHTHOUSE ? [] : ["lighthouse"];

export default defineConfig({
  testDir: "e2e",
  testIgnore: [...nightly, ...(process.env.SHORT ? long : [])].map((name) => `**/${name}.spec.ts`),
  // One system serves all tests. Most of them wait for timers of the page, not for the processor.
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
