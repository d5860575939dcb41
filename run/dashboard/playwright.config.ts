import { defineConfig } from "@playwright/test";

// The headless shell takes two thirds of Chromium's processor time, but has no hidden tabs, notifications or
// settings: tests of these have the tag @chromium.
const chromium = process.env.CHROMIUM ?? "/usr/bin/chromium";
const shell = process.env.HEADLESS_SHELL ?? chromium;
const args = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];

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
  },
  projects: [
    { name: "shell", grepInvert: /@chromium/, use: { launchOptions: { executablePath: shell, args } } },
    { name: "chromium", grep: /@chromium/, use: { launchOptions: { executablePath: chromium, args } } },
  ],
});
