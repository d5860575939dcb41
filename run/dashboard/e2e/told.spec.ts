// How a person is told of a new incident: by title, icon, sound and notification, in a
// hidden tab as well, and of several tabs by one.
import { spawn } from "node:child_process";
import type { BrowserContext, Page } from "@playwright/test";
import { answer, asked, hot } from "./answers";
import { expect, expectAccessible, signUp, test, url } from "./user";

type Recorded = Window & { shown: string[] };

/** Answers to every tab, and how often one asked. */
async function answerAll(context: BrowserContext, first: object) {
  const state = { body: first, asked: 0 };
  await context.route(asked, (route) => {
    state.asked++;
    return route.fulfill({ json: state.body });
  });
  return state;
}

/** Records notifications as they are shown. */
const record = (page: Page) => page.addInitScript(() => {
  const recorded = window as unknown as Recorded;
  recorded.shown = [];
  const Real = Notification;
  window.Notification = class extends Real {
    constructor(title: string, options?: NotificationOptions) {
      super(title, options);
      recorded.shown.push(`${title}: ${options?.body ?? ""}`);
    }
  };
});

/** A tab behind another, as its page knows it. */
const hide = (page: Page) => page.evaluate(() => {
  Object.defineProperty(document, "hidden", { get: () => true });
  Object.defineProperty(document, "visibilityState", { get: () => "hidden" });
  document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
});

const rings = (page: Page) => page.evaluate(() => performance.getEntriesByName("ring").length);
const shown = (page: Page) => page.evaluate(() => (window as unknown as Recorded).shown);

test("hidden tabs are told of a new incident, one asks for all of them, and one rings", { tag: "@chromium" }, async ({
  page, context,
}) => {
  await context.grantPermissions(["notifications"]);
  await record(page);
  await signUp(page);
  const state = await answerAll(context, answer(4, 12, {}, { incidents: [hot("s1")] }));
  await page.reload();
  await page.getByRole("button", { name: "Alarm: off" }).click();
  const dialog = page.getByRole("dialog", { name: "Alarm" });
  await dialog.getByLabel("Play a sound").check();
  await dialog.getByLabel("Show a notification").check();
  await expectAccessible(page);
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(page.getByRole("button", { name: "Alarm: on" })).toBeVisible();

  const second = await context.newPage();
  await record(second);
  await second.goto(url("/rules"));
  await second.getByRole("heading", { name: "Rules", level: 1 }).click();
  for (const tab of [page, second]) {
    await expect(tab).toHaveTitle(/^\(1\) /);
    await hide(tab);
  }
  const before = { page: await rings(page), asked: state.asked, at: Date.now() };
  // One that somebody has, one that came late, and one that is new.
  state.body = answer(4, 12, { s36: { state: "critical", temperature: 35 } }, {
    incidents: [hot("s1"), hot("s2", { id: 2, state: "taken", taken_by: "anna" }),
      hot("s3", { id: 3, late: true }), hot("s36", { id: 4 })],
  });
  for (const tab of [page, second]) await expect(tab).toHaveTitle(/^\(2\) /);
  // One at once, and one each 15 s since.
  expect(state.asked - before.asked, "requests of two tabs")
    .toBeLessThanOrEqual(1 + Math.ceil((Date.now() - before.at) / 15_000));
  await expect.poll(async () => (await rings(page)) - before.page + (await rings(second))).toBe(1);
  await expect.poll(async () => [...await shown(page), ...await shown(second)])
    .toEqual(["Hall 4 is too hot: Temperature above 32.0 °C for 12 min, peak 35.1 °C"]);
  await expect(page.locator("link[rel=icon]")).toHaveAttribute("href", "/icon-open.svg");

  // The tab that asked is closed: the other goes on by itself.
  await page.close();
  state.body = answer(4, 12);
  await expect(second).toHaveTitle(/^Rules/);
  await second.close();
});

test("a tab that is really hidden hears of an incident, and that it has no contact", { tag: "@chromium" }, async (
  { playwright }, info,
) => {
  // Playwright's own browsers take every tab for a visible one. This is one of the user's.
  const profile = info.outputPath("profile");
  const { executablePath = "", args = [] } = info.project.use.launchOptions ?? {};
  const browser = spawn(executablePath, [...args, "--headless=new", "--remote-debugging-port=0",
    `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "pipe"] });
  const gone = new Promise((resolve) => browser.once("exit", resolve));
  try {
    const endpoint = await new Promise<string>((resolve, reject) => {
      let said = "";
      browser.once("exit", () => reject(new Error(said)));
      browser.stderr.on("data", (chunk: Buffer) => {
        said += chunk;
        const found = /DevTools listening on (ws:\S+)/.exec(said)?.[1];
        if (found) resolve(found);
      });
    });
    const connected = await playwright.chromium.connectOverCDP(endpoint, { noDefaults: true });
    const [context] = connected.contexts();
    if (!context) throw new Error("a browser without a window");
    const page = await context.newPage();
    await signUp(page);
    const state = await answerAll(context, answer(4, 12));
    await page.reload();
    await expect(page).toHaveTitle("Now · Coldaisle");
    const other = await context.newPage();
    await other.bringToFront();
    await expect.poll(() => page.evaluate(() => document.visibilityState)).toBe("hidden");
    state.body = answer(4, 12, { s36: { state: "critical", temperature: 35 } }, { incidents: [hot("s36")] });
    await expect(page).toHaveTitle("(1) Now · Coldaisle");
    await context.unroute(asked);
    await context.route(asked, (route) => route.abort("connectionreset"));
    await expect(page).toHaveTitle("No contact · Now · Coldaisle");
    expect(await page.evaluate(() => document.visibilityState)).toBe("hidden");
    await context.unroute(asked);
    await expect(page).toHaveTitle("Now · Coldaisle");
    await connected.close();
  } finally {
    browser.kill();
    await gone;
  }
});

test("a tab whose worker does not come asks by itself", async ({ page }) => {
  await page.route(/\/assets\/worker-[^/]*\.js$/, (route) => route.fulfill({ status: 404, body: "" }));
  await signUp(page);
  await expect(page.getByText("No server room yet")).toBeVisible();
  await page.waitForResponse((response) => asked.test(response.url()) && response.status() === 304);
});
