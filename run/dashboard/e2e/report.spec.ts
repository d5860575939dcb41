// The report of a month: on the page, on paper, and as a file.
import { readFile } from "node:fs/promises";
import { addRoom, addSensor, expect, expectAccessible, sendReading, signUp, test } from "./user";
import { query } from "./seed";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;

test("a month of a room is shown, printed and saved", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Hall");
  const node = `report-${Date.now()}`;
  await addSensor(page, node, "Rack 1");
  await sendReading(node, 51, 40);
  await expect(page.getByText("51.0 °C")).toBeVisible();
  // Ten minutes of another, hot, an hour ago; in the first hour of a month it would be in the one before.
  const at = new Date(Math.max(Date.now() - 3_600_000, new Date().setDate(1)));
  await query("UPDATE sensors SET readable_from = NULL WHERE node_id = $1", [node]);
  await query(`INSERT INTO sensor_data.readings (node_id, timestamp, message_id, temperature, humidity)
    SELECT $1, $2::timestamptz + i * interval '1 minute', 'r' || i, CASE WHEN i < 10 THEN 33 ELSE 22 END, 40 FROM generate_series(0, 10) AS i`, [node, at]);
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Report" }).click();
  const row = page.getByRole("row", { name: /^Rack 1/ });
  await expect(row).toContainText("10 min");
  await expect(row).toContainText("22.0");
  await expect(row).toContainText("51.0");
  await expect(page.getByRole("cell", { name: /Temperature above 50.0 °C/ })).toBeVisible();
  await page.getByLabel("Room", { exact: true }).selectOption("Hall");
  await page.getByLabel("Allowable", { exact: true }).selectOption("Allowable A4");
  await expect(page).toHaveURL(/room=\d+&allowable=ashrae_a4/);
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}report.png`, fullPage: true });
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download CSV" }).click();
  const text = await readFile(await (await download).path(), "utf8");
  expect(text).toContain(`Hall,${node},Rack 1,`);
  expect(text).toMatch(/Hall,report-\d+,Rack 1,threshold,critical,"?Temperature above 50.0 °C/);
  await page.emulateMedia({ media: "print" });
  await expect(page.getByRole("navigation", { name: "Pages" })).toBeHidden();
  await expect(page.getByRole("button", { name: "Print" })).toBeHidden();
  await expect(row).toBeVisible();
  await page.screenshot({ path: `${pictures}report-print.png`, fullPage: true });
});

test("a month of 2,000 sensors is asked for two rooms at a time, and says which room is missing", async ({ page }) => {
  await signUp(page);
  const rooms = Array.from({ length: 10 }, (_, i) => ({ id: i + 1, name: `Hall ${i}`, customer_id: 1, description: null }));
  await page.route(/\/server_rooms\/list_rooms\//, (route) => route.fulfill({ json: rooms }));
  const held: { room: number; answer: () => Promise<void> }[] = [];
  let failing = true;
  await page.route(/\/data\/report\//, (route) => {
    const room = Number(/report\/(\d+)/.exec(route.request().url())?.[1]);
    const answer = () => room === 4 && failing ? route.fulfill({ status: 500, json: { detail: "Internal server error" } }) : route.fulfill({ json: Array.from({ length: 200 }, (_, i) => ({
      sensor_id: `n-${room}-${i}`, name: `Rack ${i + 1}`, minutes_reported: 43_200, minutes_outside_recommended: 1, minutes_outside_allowable: 0, min_temperature: 20, max_temperature: 28,
    })) });
    held.push({ room, answer });
  });
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Report" }).click();
  for (let answered = 0; answered < 10; answered++) {
    // Of those that are left two are under way, the last one alone.
    await expect.poll(() => held.length).toBe(Math.min(answered + 2, 10));
    await held[answered]?.answer();
  }
  await expect(page.getByText("Hall 3 is missing. Internal server error")).toBeVisible();
  await expect(page.getByText("Of 9 of 10 rooms.", { exact: false })).toBeVisible();
  await expect(page.locator(".numbers tbody tr")).toHaveCount(1800);
  await expect(page.getByRole("button", { name: "Print" })).toBeDisabled();
  failing = false;
  await page.getByRole("button", { name: "Try again" }).click();
  await expect.poll(() => held.length).toBe(11);
  await held[10]?.answer();
  await expect(page.locator(".numbers tbody tr")).toHaveCount(2000);
  await expect(page.getByRole("button", { name: "Print" })).toBeEnabled();
});
