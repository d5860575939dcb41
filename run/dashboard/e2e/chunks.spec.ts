// Chunks that do not come: after a release, over a bad network, while the service
// is away. The user is told, is never signed out, and is never in a loop.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page, Route } from "@playwright/test";
import {
  addRoom, addSensor, expect, expectAccessible, expectPreloaded, openMe, sendReading, signUp, signUpByForm, test, url,
} from "./user";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;

/** What the network makes of a request; a missing file is the service's own answer. */
const ways = {
  "is missing": (route: Route) => route.continue({ url: url("/assets/gone-00000000.js") }),
  "is answered with 503": (route: Route) => route.fulfill({ status: 503, body: "upstream connect error" }),
  "is lost on the way": (route: Route) => route.abort("connectionreset"),
};

/** A user who is signed in while a chunk fails, and how often the page was loaded since. */
async function withFailing(page: Page, name: string, way: (route: Route) => Promise<void>,
  enter: (page: Page) => Promise<unknown> = signUp) {
  const state = { failing: true, loads: 0, mendedByLoad: false };
  await page.route(new RegExp(`/assets/${name}-[^/]*\\.js$`), (route) =>
    (state.failing ? way(route) : route.continue()));
  await enter(page);
  page.on("request", (request) => {
    if (!request.isNavigationRequest()) return;
    state.loads++;
    if (state.mendedByLoad) state.failing = false;
  });
  return state;
}

const openIncidents = (page: Page) => page.getByRole("navigation", { name: "Pages" })
  .getByRole("link", { name: "Incidents" }).click();
const heading = (page: Page, name: string) => page.getByRole("heading", { name, level: 1 });

for (const [what, way] of Object.entries(ways)) {
  test(`a chunk that ${what} once costs one reload`, async ({ page }) => {
    const state = await withFailing(page, "incidents", way);
    state.mendedByLoad = true;
    await openIncidents(page);
    await expect(heading(page, "Incidents")).toBeVisible();
    expect(state.loads).toBe(1);
    await expect(page).toHaveURL(url("/incidents"));
  });

  test(`a chunk that ${what} for ever is told, after one reload`, async ({ page }) => {
    const state = await withFailing(page, "incidents", way);
    await openIncidents(page);
    const told = page.getByRole("alert")
      .filter({ hasText: "The page could not be loaded. A file is missing, or was lost on the way." });
    await expect(told).toBeVisible();
    expect(state.loads, "loads by the page itself").toBe(1);
    await expectAccessible(page);
    await page.screenshot({ path: `${pictures}chunk-missing.png` });

    const again = page.waitForEvent("load");
    await page.getByRole("button", { name: "Try again" }).click();
    await again;
    await expect(told).toBeVisible();
    expect(state.loads, "a press may reload once more").toBe(2);

    await page.getByRole("link", { name: "Now", exact: true }).click();
    await expect(heading(page, "Now")).toBeVisible();
    await page.goBack();
    await expect(told).toBeVisible();
    state.failing = false;
    await page.getByRole("button", { name: "Try again" }).click();
    await expect(heading(page, "Incidents")).toBeVisible();
    expect(state.loads, "what comes needs no reload").toBe(2);
  });
}

test("the file of the requests that is missing costs one reload, and never what was typed", async ({ page }) => {
  const state = await withFailing(page, "requests", ways["is missing"]);
  // Now loads itself anew meanwhile.
  await expect(() => page.goto(url("/rooms"))).toPass();
  // What every page asks for reloads this one, which then asks whether the service is there.
  await page.waitForFunction(() => {
    const [first, ...rest] = ["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type));
    return (first as PerformanceNavigationTiming).type === "reload" && rest.some(({ name }) => name === `${origin}/`);
  });
  state.loads = 0;
  // As if no page here had been loaded again before.
  await page.evaluate(() => history.replaceState(null, ""));
  await page.getByRole("button", { name: "Add room" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("Basement");
  await dialog.getByRole("button", { name: "Add room" }).click();
  const missing = "A file is missing, or was lost on the way.";
  await expect(dialog.getByText(`${missing} If it stays so, reload this window.`)).toBeVisible();
  await expect(dialog.getByLabel("Name")).toHaveValue("Basement");
  expect(state.loads, "what was typed is kept").toBe(0);

  await page.goto(url("/rules"));
  const told = page.getByRole("alert").filter({ hasText: missing });
  await expect(told).toHaveCount(2);
  expect(state.loads, "one of the test, one of the page").toBe(2);
  state.mendedByLoad = true;
  await told.getByRole("button", { name: "Try again" }).first().click();
  await expect(page.getByRole("heading", { name: "All sensors" })).toBeVisible();
  expect(state.loads, "a press may reload once more").toBe(3);
});

test("a part of the page that is missing does not drop what was typed in a form", async ({ page }) => {
  const state = await withFailing(page, "alarmdialog", ways["is missing"]);
  await page.goto(url("/account"));
  const field = page.locator("main form input").first();
  await field.pressSequentially("kept");
  const typed = await field.inputValue();
  state.loads = 0;
  await page.getByRole("button", { name: "Alarm: off" }).click();
  await expect(page.getByText("The form could not be loaded. A file is missing", { exact: false })).toBeVisible();
  await expect(field).toHaveValue(typed);
  expect(state.loads, "what was typed is kept").toBe(0);
});

test("while the service is away the page stays, and does not reload into nothing", async ({ page }) => {
  const state = await withFailing(page, "incidents", ways["is answered with 503"]);
  await page.route(url("/"), (route) =>
    (state.failing ? route.fulfill({ status: 503, body: "no healthy upstream" }) : route.continue()));
  await openIncidents(page);
  await expect(page.getByText("The page could not be loaded. The service answered 503.")).toBeVisible();
  await page.getByRole("link", { name: "Now", exact: true }).click();
  await expect(heading(page, "Now")).toBeVisible();
  await openIncidents(page);
  await expect(page.getByText("The service answered 503.")).toBeVisible();
  state.failing = false;
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(heading(page, "Incidents")).toBeVisible();
  expect(state.loads).toBe(0);
});

test("without a network the page says so, and goes on when there is one", async ({ page, context }) => {
  const state = await withFailing(page, "incidents", ways["is lost on the way"]);
  await context.setOffline(true);
  await openIncidents(page);
  await expect(page.getByText("The page could not be loaded. The service cannot be reached.")).toBeVisible();
  await page.screenshot({ path: `${pictures}chunk-offline.png` });
  const asked = page.waitForEvent("requestfailed", (request) => request.method() === "HEAD");
  await page.getByRole("button", { name: "Try again" }).click();
  await asked;
  await expect(page.getByText("The page could not be loaded. The service cannot be reached.")).toBeVisible();
  state.failing = false;
  await context.setOffline(false);
  await expect(heading(page, "Incidents")).toBeVisible();
  expect(state.loads).toBe(0);
});

test("an idle page has loaded every chunk, and needs no network to open another", async ({ page, context }) => {
  await signUp(page);
  await expectPreloaded(page);
  await context.setOffline(true);
  const go = (nav: string, name: string) =>
    page.getByRole("navigation", { name: nav }).getByRole("link", { name }).click();
  for (const name of ["Incidents", "Rooms"]) {
    await go("Pages", name);
    await expect(heading(page, name)).toBeVisible();
  }
  await go("Pages", "Setup");
  for (const name of ["Rules", "Maintenance", "Gateways"]) {
    await go("Setup", name);
    await expect(heading(page, name)).toBeVisible();
  }
});

test("missing charts leave the rest of their page, and reload it once", async ({ page }) => {
  const state = await withFailing(page, "chart", ways["is missing"]);
  await addRoom(page, "Basement");
  const node = `chartless-${Date.now()}`;
  await addSensor(page, node, "Rack 1");
  // No chart of the room is asked for meanwhile.
  await page.goto(url("/settings"));
  await sendReading(node, 21.5, 40);
  await page.goto(url(`/sensors/${node}`));
  await expect(page.getByText("The charts could not be loaded.", { exact: false })).toHaveCount(1);
  await expect(page.getByText("21.5 °C")).toBeVisible();
  expect(state.loads, "two of the test, one of the page").toBe(3);
  await page.screenshot({ path: `${pictures}charts-missing.png` });
  state.failing = false;
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.locator("canvas")).toHaveCount(3);
});

test("an error of one page is kept to that page", async ({ page }) => {
  // An answer of a proxy that is no list.
  await page.route(/\/api\/v1\/rules$/, (route) => route.fulfill({ json: {} }));
  await signUp(page);
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Setup" }).click();
  await page.getByRole("navigation", { name: "Setup" }).getByRole("link", { name: "Rules" }).click();
  await expect(page.getByText("This page has an error:", { exact: false })).toBeVisible();
  await page.screenshot({ path: `${pictures}page-error.png` });
  await openIncidents(page);
  await expect(heading(page, "Incidents")).toBeVisible();
});

test("a page whose own script does not come says so", async ({ page }) => {
  await page.route(/\/assets\/index-[^/]*\.js$/, ways["is missing"]);
  await page.goto(url());
  await expect(page.getByText("Coldaisle has not started", { exact: false })).toBeVisible();
  await page.screenshot({ path: `${pictures}not-started.png` });
  await page.unroute(/\/assets\/index-[^/]*\.js$/);
  await page.getByRole("link", { name: "Reload the page" }).click();
  await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
  await expect(page.getByText("Coldaisle has not started", { exact: false })).toHaveCount(0);
});

test("a browser that forbids all storage has a session as long as the page", { tag: "@chromium" }, async (
  { playwright }, info,
) => {
  // The browser's own setting "block all cookies": every access to storage throws.
  const profile = mkdtempSync(join(tmpdir(), "coldaisle-profile-"));
  mkdirSync(join(profile, "Default"));
  writeFileSync(join(profile, "Default/Preferences"),
    JSON.stringify({ profile: { default_content_setting_values: { cookies: 2 } } }));
  const context = await playwright.chromium.launchPersistentContext(profile, info.project.use.launchOptions);
  try {
    const page = await context.newPage();
    const errors: string[] = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    const state = await withFailing(page, "incidents", ways["is missing"], signUpByForm);
    expect(await page.evaluate(() => {
      try { return localStorage.length; } catch (error) { return (error as Error).name; }
    })).toBe("SecurityError");
    await addRoom(page, "Basement");
    await openMe(page);
    await page.getByRole("button", { name: "Colours: auto" }).click();
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "Now", exact: true }).first().click();
    await expect(page.getByRole("link", { name: "Basement" })).toBeVisible();
    await page.screenshot({ path: `${pictures}storage-blocked.png` });

    // A reload would sign out: the page leaves it to the user.
    await openIncidents(page);
    await expect(page.getByText("If it stays so, reload this window and sign in again.", { exact: false }))
      .toBeVisible();
    expect(state.loads).toBe(0);
    await page.screenshot({ path: `${pictures}storage-blocked-chunk.png` });
    state.failing = false;
    await page.getByRole("button", { name: "Try again" }).click();
    await expect(heading(page, "Incidents")).toBeVisible();

    await openMe(page);
    await page.getByRole("button", { name: "Sign out" }).click();
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    await signUpByForm(page);
    await page.reload();
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    expect(errors).toEqual([]);
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  }
});
