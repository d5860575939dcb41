// What the page shows where one of its requests fails: neither nothing, nor less than before.
import { answer, show } from "./answers";
import { addRoom, ask, expect, incidentOf, sendReading, signUp, test, tokenOf, url } from "./user";
import type { Page } from "@playwright/test";

/** How often it has failed. */
async function fail(page: Page, path: RegExp): Promise<() => number> {
  let failures = 0;
  await page.route(path, async (route) => {
    await route.fulfill({ status: 500, json: { detail: "Out of order" } });
    failures++;
  });
  return () => failures;
}

/** Moves the clock until the page has asked anew, and given up: it asks three times. As slowly as time passes
 * where nothing is due, since the page's patience with a request ends by the same clock. */
const untilGivenUp = async (page: Page, failures: () => number) => {
  await page.clock.fastForward("02:00");
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange", { bubbles: true })));
  await expect(async () => {
    await page.clock.runFor(1000);
    expect(failures()).toBeGreaterThanOrEqual(3);
  }).toPass({ intervals: [1000] });
  await page.clock.runFor(1000);
};
const failure = (page: Page) => page.getByRole("alert").filter({ hasText: "Out of order" });

test("a list that does not come is no empty one", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  await addRoom(page, "Hall A");
  const address = page.url();
  const [room] = await ask<{ room_id: number | null }[]>(token, "POST", "/api/v1/rules/preset",
    { preset: "ashrae_recommended", room_id: Number(address.split("/").pop()) });
  await ask(token, "POST", "/api/v1/invitations", { email: "ben@example.com", role: "viewer" });
  await ask(token, "POST", "/api/v1/api-keys", { name: "Site", scope: "read", room_ids: [room?.room_id] });
  await fail(page, /\/list_rooms\/|\/invitations$|\/persons$/);

  await page.goto(address);
  await expect(page.getByRole("heading", { name: "Hall A", level: 1 })).toBeVisible();
  await expect(failure(page), "what to do there").toBeVisible();
  await page.goto(url("/rules"));
  await expect(page.getByRole("heading", { name: `Room ${room?.room_id}` })).toBeVisible();
  await page.goto(url("/keys"));
  await expect(page.getByRole("cell", { name: `Room ${room?.room_id}`, exact: true }), "not deleted").toBeVisible();
  await page.getByRole("button", { name: "Create key" }).click();
  await expect(page.getByRole("dialog").getByRole("alert"), "the rooms of a key").toBeVisible();
  await page.goto(url("/account"));
  await expect(failure(page)).toBeVisible();
  await page.unroute(/\/list_rooms\/|\/invitations$|\/persons$/);
  await fail(page, /\/invitations$/);
  await page.goto(url("/persons"));
  await expect(failure(page), "open invitations").toBeVisible();
});

test("an incident that cannot be asked for again says so", async ({ page }) => {
  await page.clock.install();
  await signUp(page);
  await addRoom(page, "Hall A");
  const id = `hot-${Date.now()}`;
  const token = await tokenOf(page);
  const room = Number(page.url().split("/").pop());
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: "Rack 1", type: "A", room_id: room });
  await sendReading(id, 51, 40);
  await page.goto(url(`/incidents/${await incidentOf(token, id)}`));
  await expect(page.getByRole("heading", { name: "Hall A is too hot" })).toBeVisible();
  await untilGivenUp(page, await fail(page, /\/incidents\/\d+$/));
  await expect(failure(page)).toBeVisible();
  await expect(page.getByRole("heading", { name: "Hall A is too hot" })).toBeVisible();
});

test("the chart of a room stays when its readings cannot be asked for again", async ({ page }) => {
  await page.clock.install();
  await signUp(page);
  await show(page, answer(1, 1));
  await page.route(/\/list_rooms\//, (route) => route.fulfill({ json: [] }));
  const bucket = { timestamp: new Date(Date.now() - 600_000).toISOString(), count: 1, temperature: 21, humidity: 45 };
  await page.route(/\/historical\//, (route) => route.fulfill({ json: [bucket] }));
  await page.goto(url("/rooms/1"));
  const chart = page.getByRole("img", { name: /^Temperature from/ });
  await expect(chart).toBeVisible();
  const failures = await fail(page, /\/historical\//);
  await page.clock.fastForward("05:00");
  await untilGivenUp(page, failures);
  await expect(failure(page)).toBeVisible();
  await expect(chart).toBeVisible();
});

test("an invitation that nobody could ask about is not refused", async ({ page }) => {
  await page.route(/\/invitations\/accept$/, (route) => route.abort("connectionreset"));
  await page.goto(url("/join#code"));
  await expect(page.getByText("The service cannot be reached.")).toBeVisible();
  await expect(page.getByText("Ask for a new one.")).toHaveCount(0);
  await page.unroute(/\/invitations\/accept$/);
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.getByText("Ask for a new one.")).toBeVisible();
});

test("a poll that fails drops nothing typed, and no page", async ({ page }) => {
  await page.clock.install();
  await signUp(page);
  await page.goto(url("/setup"));
  await page.getByRole("button", { name: "Add gateway" }).click();
  const name = page.getByRole("dialog").getByLabel("Name");
  await name.fill("Basement");
  await untilGivenUp(page, await fail(page, /\/gateways\/nodes/));
  await expect(page.getByText("Out of order")).toBeAttached();
  await expect(name).toHaveValue("Basement");
});

test("what is known of a sensor stays when it cannot be asked for again", async ({ page }) => {
  await page.clock.install();
  await signUp(page);
  await addRoom(page, "Hall A");
  const id = `failing-${Date.now()}`;
  const room = Number(page.url().split("/").pop());
  await ask(await tokenOf(page), "POST", "/api/v1/sensors/new_sensor",
    { id, name: "Rack 1", type: "A", room_id: room });
  await page.goto(url(`/sensors/${id}`));
  await page.getByRole("button", { name: "Rename or move" }).click();
  const name = page.getByRole("dialog").getByLabel("Name");
  await name.fill("Rack 2, inlet");
  const failures = await fail(page, /\/sensors\/sensor\//);
  await untilGivenUp(page, failures);
  await expect(name).toHaveValue("Rack 2, inlet");
});

test("open invitations stay when they cannot be asked for again, and what is asked of one", async ({ page }) => {
  await page.clock.install();
  await signUp(page);
  await ask(await tokenOf(page), "POST", "/api/v1/invitations", { email: "ben@example.com", role: "viewer" });
  await page.goto(url("/persons"));
  await page.getByRole("button", { name: "Revoke ben@example.com" }).click();
  const failures = await fail(page, /\/invitations$/);
  await untilGivenUp(page, failures);
  await expect(page.getByText("Out of order")).toBeAttached();
  await expect(page.getByRole("dialog")).toContainText("Its link stops working.");
});
