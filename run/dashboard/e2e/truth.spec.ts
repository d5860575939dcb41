// What must never be said or shown wrongly, each as it once was.
import { answer, show } from "./answers";
import { query, seedReadings } from "./seed";
import { ask, expect, expectAccessible, sendReading, signUp, test, tokenOf, url } from "./user";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;

test("210 newer incidents that are over hide none of 31 that last", async ({ page }) => {
  const email = await signUp(page);
  await query(`INSERT INTO incidents (customer_id, kind, channel, node_id, sensor_name, room_name, quantity, direction, limit_value, severity, start_time, end_time,
      lasting, peak, peak_time, resolution)
    SELECT (SELECT id FROM customers WHERE email = $1), 'threshold', 0, 'truth-' || i, 'Rack ' || i, 'Hall', 'temperature', 'above', 27, 'critical', at, at,
      i > 210, 41, at, CASE WHEN i > 210 THEN '' ELSE 'cleared' END
    FROM (SELECT i, now() - i * interval '1 minute' AS at FROM generate_series(1, 241) AS i) AS began`, [email]);
  const token = await tokenOf(page);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Hall" });
  const id = `truth-${room.id}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: "Rack 1", type: "ESP32-DHT22", room_id: room.id });
  await sendReading(id, 22, 40);
  await page.reload();
  await expect(page.getByText(/31 incidents, worst: Rack \d+\. Temperature above 27\.0 °C/)).toBeVisible();
  await expect(page.getByRole("link", { name: "241 incidents to be seen" })).toBeVisible();
  await expect(page).toHaveTitle("(241) Overview · Coldaisle");
});

test("rooms at 33 to 37 °C without rules are told of though old incidents wait to be seen", async ({ page }) => {
  await signUp(page);
  const warm = Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`s${i}`, { temperature: 33 + i / 3 }]));
  await show(page, answer(2, 12, warm, { to_be_seen: 210, limits: [[]] }));
  await page.reload();
  await expect(page.getByText("No limit is broken, but 12 sensors are outside the recommended range: Hall 1, Rack 12 has 36.7 °C", { exact: false })).toBeVisible();
  await expect(page.getByText("210 incidents to be seen are over.", { exact: false })).toBeVisible();
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}overview-outside.png` });
});

test("a cell is a link: Ctrl-click and middle-click open a tab, a click does not reload", async ({ page, context }) => {
  await signUp(page);
  await show(page, answer(1, 3));
  await page.reload();
  const cell = page.getByRole("link", { name: /^Rack 2, / });
  await expect(cell).toHaveAttribute("href", "/sensors/s1");
  for (const press of [() => cell.click({ modifiers: ["ControlOrMeta"] }), () => cell.click({ button: "middle" })]) {
    const opened = context.waitForEvent("page");
    await press();
    const tab = await opened;
    await expect(tab).toHaveURL(url("/sensors/s1"));
    await tab.close();
  }
  await page.evaluate(() => Object.assign(window, { stayed: true }));
  await cell.click();
  await expect(page).toHaveURL(url("/sensors/s1"));
  expect(await page.evaluate(() => "stayed" in window)).toBe(true);
});

test("the values at the cursor stay in the window beside every chart", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Hall" });
  const id = `readout-${room.id}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: "Rack 1", type: "ESP32-DHT22", room_id: room.id });
  await seedReadings([id], 86_400, 30, 120);
  await page.goto(url(`/sensors/${id}`));
  const last = page.locator(".chart").last();
  await last.scrollIntoViewIfNeeded();
  await last.hover({ position: { x: 300, y: 100 } });
  await expect(page.getByRole("columnheader", { name: /^At the cursor/ })).toBeInViewport();
  await page.screenshot({ path: `${pictures}readout.png` });
});

test("a path that is nothing is a page for people and JSON for programs", async ({ page }) => {
  await signUp(page);
  const response = await page.goto(url("/nothing"));
  expect(response?.status()).toBe(404);
  await expect(page.getByText("There is no such page")).toBeVisible();
  const program = await fetch(url("/nothing"), { headers: { Accept: "application/json" } });
  expect([program.status, program.headers.get("content-type")]).toEqual([404, "application/json"]);
});
