// A computer whose clock is wrong: what is shown is by the service's.
import type { Page } from "@playwright/test";
import { seedReadings } from "./seed";
import { ask, expect, sendReading, sessionOf, signInAs, signUp, password, test, url } from "./user";

/** A page of a computer so many milliseconds ahead. Its worker's clock cannot be moved: the page asks by itself. */
async function wrongClock(page: Page, ahead: number): Promise<void> {
  await page.route(/\/assets\/worker-[^/]*\.js$/, (route) => route.fulfill({ status: 404, body: "" }));
  await page.clock.install({ time: Date.now() + ahead });
}

test("a clock 45 min fast signs in, stays signed in after a reload, and shows ages", async ({ page, browser }) => {
  const other = await browser.newPage();
  const email = await signUp(other);
  await other.close();
  await wrongClock(page, 45 * 60_000);
  await signInAs(page, email, password);
  await page.reload();
  await expect(page.getByText("No server room yet")).toBeVisible();
  await expect(page.getByText("Your session has ended")).toHaveCount(0);
  await expect(page.getByText("Your session ends in", { exact: false })).toHaveCount(0);
  const { token } = await sessionOf(email, password);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Hall" });
  const id = `fast-${room.id}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: "Rack 1", type: "ESP32-DHT22", room_id: room.id });
  await sendReading(id, 21, 40);
  await page.goto(url(`/sensors/${id}`));
  await expect(page.getByText(/Measured (\d+ s|\d min) ago/)).toBeVisible();
});

test("a clock a day slow shows the newest readings and how long an incident lasts", async ({ page, browser }) => {
  const other = await browser.newPage();
  const email = await signUp(other);
  await other.close();
  const { token } = await sessionOf(email, password);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Hall" });
  const id = `clock-${room.id}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: "Rack 1", type: "ESP32-DHT22", room_id: room.id });
  await seedReadings([id], 3 * 86_400, 60, 300);
  await sendReading(id, 51, 40);
  await wrongClock(page, -86_400_000);
  await signInAs(page, email, password);
  const asked = page.waitForRequest(/\/historical\//);
  await page.goto(url(`/sensors/${id}`));
  const end = Date.parse(new URL((await asked).url()).searchParams.get("end_time") ?? "");
  expect(Math.abs(end - Date.now()), "milliseconds between the range's end and now").toBeLessThan(10 * 60_000);
  await expect(page.getByText(/Measured \d+ (s|min) ago/)).toBeVisible();
  // By the computer's clock it would last 0 s for a day.
  await page.goto(url("/incidents"));
  await expect(page.getByRole("row", { name: /Rack 1/ }).getByRole("cell").nth(2)).toContainText(/Lasts [1-9]/);
});

test("after a sleep what was shown before it is old at once, and asked for as soon as there is a network", async ({
  page,
}) => {
  await wrongClock(page, 0);
  await signUp(page);
  await expect(page.locator(".live")).toContainText("live");
  await page.route("**/api/v1/overview", () => undefined); // it hangs
  await expect(() => page.clock.pauseAt(Date.now() + 1000)).toPass();
  await page.clock.setSystemTime(Date.now() + 10 * 60_000); // and no timer has run
  await page.clock.runFor(1000);
  await expect(page.getByText(/No contact since/)).toBeVisible();
  await expect(page.locator(".live")).toContainText("as of");
  const asked = page.waitForRequest("**/api/v1/overview");
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await asked;
});
