import { defineConfig } from "@playwright/test";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";

export default defineConfig({
  testDir: "e2e",
  // One system serves all tests, and the times that they print want the machine for themselves.
  workers: 1,
  // Only what hangs takes so long, however busy the machine is.
  timeout: 180_000,
  expect: { timeout: 30_000 },
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
