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
  await expect(page.getByText("51.0 °C")).toBeVisible({ timeout: 25_000 });
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
