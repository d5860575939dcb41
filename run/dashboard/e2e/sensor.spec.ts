// The sensor's page: charts that stay, an address that can be shared, a cursor for the keyboard.
import type { Page } from "@playwright/test";
import {
  addRoom, addSensor, ask, dragAcrossChart, expect, expectAccessible, signUp, test, timeOfDay, tokenOf, url,
} from "./user";
import { seedReadings } from "./seed";
import { excursion } from "../tests/excursion";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;
const charts = (page: Page) => page.locator(".chart canvas");

/** A room with three sensors that have measured for a day, on the page of the first. */
async function withThree(page: Page): Promise<string[]> {
  await signUp(page);
  await addRoom(page, "Hall");
  const stamp = Date.now();
  const nodes = ["a", "b", "c"].map((name) => `chart-${name}-${stamp}`);
  for (const [i, node] of nodes.entries()) await addSensor(page, node, `Rack ${i + 1}`);
  await seedReadings(nodes, 86_400, 30, 120);
  await page.goto(url(`/sensors/${nodes[0]}`));
  await expect(charts(page)).toHaveCount(3);
  return nodes;
}

test("charts are made once: no refetch, range, zoom or failure destroys them", async ({ page }) => {
  await withThree(page);
  await charts(page).evaluateAll((found) => found.forEach((canvas) => { canvas.dataset.first = "yes"; }));
  const first = page.locator(".chart canvas[data-first]");
  for (const period of ["7d", "1h"]) {
    const answered = page.waitForResponse((response) => response.url().includes("/historical/"));
    await page.getByRole("button", { name: period, exact: true }).click();
    await (await answered).finished();
    await expect(page.getByRole("button", { name: period, exact: true })).toHaveAttribute("aria-pressed", "true");
    await expect(first).toHaveCount(3);
  }
  await page.getByRole("button", { name: "Zoom out" }).click();
  await expect(page).toHaveURL(/from=.*to=/);
  await expect(first).toHaveCount(3);
  await page.route(/\/historical\//, (route) => route.abort("connectionreset"));
  await page.getByRole("button", { name: "6h", exact: true }).click();
  await expect(page.getByRole("region", { name: "Readings" }).getByRole("alert")).toBeVisible();
  await expect(first).toHaveCount(3);
  await page.unroute(/\/historical\//);
  // Another sensor beside it is another line: the charts are made anew, but never absent.
  await page.getByText(/^Compare/).click();
  await page.getByLabel("Rack 2").check();
  await expect(page.getByRole("row", { name: /^Rack 2/ })).toBeVisible();
  await expect(charts(page)).toHaveCount(3);
});

test("sensors of one name in two rooms are told apart when they are compared", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  const nodes: string[] = [];
  for (const name of ["Hall A", "Hall B"]) {
    const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name });
    nodes.push(`same-${room.id}`);
    await ask(token, "POST", "/api/v1/sensors/new_sensor",
      { id: `same-${room.id}`, name: "Rack 1", type: "DHT22", room_id: room.id });
  }
  await seedReadings(nodes, 86_400, 300, 120);
  await page.goto(url(`/sensors/${nodes[0]}?with=${nodes[1]}`));
  await expect(page.getByRole("row", { name: /^Rack 1 / })).toHaveCount(1);
  await expect(page.getByRole("row", { name: /^Hall B, Rack 1 / })).toBeVisible();
});

test("what is seen of a sensor stays where it is while its charts come", async ({ page }) => {
  await withThree(page);
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => { release = resolve; });
  await page.route(/\/historical\//, async (route) => {
    await held;
    await route.continue();
  });
  await page.reload();
  await expect(page.getByText("Loading readings…")).toBeVisible();
  const top = (name: string) => page.getByRole("heading", { name, exact: true })
    .evaluate((heading) => heading.getBoundingClientRect().top);
  const before = [await top("Readings"), await top("Excursions")] as const;
  expect(before[1], "what comes after the charts is below the window").toBeGreaterThan(900);
  release();
  await expect(charts(page)).toHaveCount(3);
  expect(await top("Readings")).toBe(before[0]);
  expect(await top("Excursions")).toBeGreaterThan(900);
});

test("what is usual is drawn over the range, asked for by whole hours, and its absence is said", async ({ page }) => {
  let usual: unknown[] | undefined;
  page.on("response", async (response) => {
    if (response.url().includes("/data/usual/") && response.ok()) usual = await response.json() as typeof usual;
  });
  await page.addInitScript(() => {
    const dashes = new Set<string>();
    Object.assign(window, { dashes });
    const { setLineDash } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.setLineDash = function (segments) {
      dashes.add([...segments].join());
      setLineDash.call(this, segments);
    };
  });
  await withThree(page);
  // The seeded day has an hour before each of its hours but the first.
  await expect.poll(() => usual?.length ?? 0).toBeGreaterThanOrEqual(22);
  const [temperature, humidity] = [page.getByRole("img", { name: /^Temperature from/ }),
    page.getByRole("img", { name: /^Humidity from/ })];
  await expect(temperature).toHaveAccessibleName(/last usual from \d+\.\d to \d+\.\d °C/);
  await expect(humidity).not.toHaveAccessibleName(/usual/);
  await expect(page.getByText("Dashed: what is usual for this sensor, hour by hour")).toBeVisible();
  // The pattern of the band's edges alone.
  const dashed = () => page.evaluate(() =>
    (window as unknown as { dashes: Set<string> }).dashes.has(`${2 * devicePixelRatio},${3 * devicePixelRatio}`));
  await expect.poll(dashed).toBe(true);
  await page.route("**/api/v1/data/usual/**", (route) => route.fulfill({ json: [] }));
  await page.reload();
  await expect(page.getByText("What is usual is drawn once there is an hour of readings")).toBeVisible();
  await expect(temperature).not.toHaveAccessibleName(/usual/);
  await expect(charts(page)).toHaveCount(3);
  expect(await dashed()).toBe(false);
});

test("range, zoom and compared sensors are in the address: shared, and gone back to", async ({ page, context }) => {
  const [, second] = await withThree(page);
  await page.getByRole("button", { name: "7d" }).click();
  await page.getByText(/^Compare/).click();
  await page.getByLabel("Rack 2").check();
  await expect(page).toHaveURL(new RegExp(`range=7d&with=${second}`));
  await expect(page.getByRole("row", { name: /^Rack 2/ }), "the charts of both are drawn").toBeVisible();
  await dragAcrossChart(page);
  await expect(page).toHaveURL(/from=/);
  const shared = await context.newPage();
  await shared.goto(page.url());
  await expect(shared.getByLabel("Rack 2")).toBeChecked();
  await expect(shared.getByRole("button", { name: "7d" })).toHaveAttribute("aria-pressed", "false");
  expect(await shared.getByLabel("From").inputValue()).toBe(await page.getByLabel("From").inputValue());
  await shared.close();
  await page.goBack();
  await expect(page.getByRole("button", { name: "7d" })).toHaveAttribute("aria-pressed", "true");
  await page.goBack();
  await expect(page.getByLabel("Rack 2")).not.toBeChecked();
  await page.goBack();
  await expect(page.getByRole("button", { name: "24h" })).toHaveAttribute("aria-pressed", "true");
});

test("a range that ends where it begins says so, and a time that clocks show twice or never what it means",
  async ({ page }) => {
  await withThree(page);
  await page.getByRole("button", { name: "Custom" }).click();
  const [from, to] = [page.getByLabel("From", { exact: true }), page.getByLabel("To", { exact: true })];
  await page.setViewportSize({ width: 320, height: 640 });
  expect(await from.evaluate(({ clientWidth }) => clientWidth), "room for day and time").toBeGreaterThan(220);
  await from.fill("2026-07-01T10:00");
  await to.fill("2026-07-01T10:00");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await expect(to).toHaveAccessibleDescription("Choose a time after From.");
  await expect(to, "where it is said").toBeFocused();
  await expect(page).not.toHaveURL(/from=/);
  await from.fill("2026-03-29T02:30");
  await expect(from).toHaveAccessibleDescription("Clocks change then. This is 03:30 CEST.");
  await to.fill("2026-10-25T02:30");
  await expect(to).toHaveAccessibleDescription("Clocks change then. This is 02:30 CET.");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await expect(page).toHaveURL(/from=2026-03-29T01%3A30%3A00.000Z&to=2026-10-25T01%3A30%3A00.000Z/);
});

test("one cursor in all charts is moved and read by keyboard", async ({ page }) => {
  const [, second] = await withThree(page);
  await page.goto(`${page.url()}?with=${second}`);
  await expect(charts(page)).toHaveCount(3);
  const slider = page.getByRole("slider", { name: "Cursor of the charts" });
  await slider.focus();
  for (let i = 0; i < 40; i++) await page.keyboard.press("ArrowLeft");
  await expect(page.getByRole("columnheader", { name: /^At the cursor/ })).toBeVisible();
  await expect(slider).toHaveAttribute("aria-valuetext",
    /Rack 1: Temperature \d+\.\d °C, Humidity \d+\.\d %, Dew point \d+\.\d °C\. Rack 2: Temperature \d+\.\d °C/,
  );
  const lines = await page.locator(".u-cursor-x")
    .evaluateAll((found) => found.map((line) => Math.round(line.getBoundingClientRect().x)));
  expect(lines).toHaveLength(3);
  expect(Math.max(...lines) - Math.min(...lines), "the charts have one cursor").toBeLessThanOrEqual(2);
  await expectAccessible(page);
});

test("limits, anomalies, maintenance and what is expected are drawn and said", async ({ page }) => {
  const [node] = await withThree(page);
  const token = await tokenOf(page);
  await ask(token, "POST", "/api/v1/rules", { quantity: "temperature", direction: "above", limit: 27, for_s: 120,
    clear_margin: 0.5, clear_for_s: 120, severity: "warning", enabled: true });
  await ask(token, "POST", "/api/v1/maintenance", {
    start_time: new Date(Date.now() - 20 * 60_000).toISOString(), duration_s: 7200, sensor_id: node,
  });
  const at = (minutes: number) => new Date(Date.now() + minutes * 60_000).toISOString();
  const own = {
    incident_id: 41, sensor_id: node, sensor_name: "Rack 1", start_time: at(-12), last_time: at(-1), peak_time: at(-1),
  };
  await page.route(/\/api\/v1\/excursions\?/, (route) => route.fulfill({ json: [
    excursion({
      ...own, id: 2, kind: "forecast", reason: "passes 27 °C in 9 to 14 min", earliest: at(9), latest: at(14),
    }),
    excursion({ ...own, id: 3, kind: "anomaly", reason: "warmer than its neighbours", direction: null, limit: null,
      band_low: 22, band_high: 23.5 }),
  ] }));
  await page.goto(url(`/sensors/${node}?range=1h`));
  const chart = page.getByRole("img", { name: /^Temperature from/ });
  await expect(chart).toHaveAccessibleName(
    new RegExp(String.raw`limit 27\.0 °C.*1 excursion, 1 maintenance window, expected to pass 27\.0 °C between `
      + `${timeOfDay} and ${timeOfDay}`),
  );
  const rows = page.getByRole("region", { name: "Excursions" }).getByRole("row");
  await expect(rows.filter({ hasText: "Passes 27 °C in 9 to 14 min" }).getByRole("link", { name: "Open incident 41" }))
    .toHaveAttribute("href", "/incidents/41");
  await expect(rows.filter({ hasText: "Warmer than its neighbours" })).toContainText("Usual: 22.0 °C to 23.5 °C");
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}sensor-fan.png`, fullPage: true });
});

test("the steps of an axis are equal as they are written", async ({ page }) => {
  await page.addInitScript(() => {
    const { fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
      performance.mark(text);
      fillText.call(this, text, ...where);
    };
  });
  const [node = ""] = await withThree(page);
  // Two degrees around one value: as steep as an axis becomes.
  await page.route(/\/data\/historical\//, (route) => route.fulfill({ json: [
    { node_id: node, timestamp: new Date().toISOString(), temperature: 61.5, humidity: 44, min_temperature: 61.5,
      max_temperature: 61.5, min_humidity: 44, max_humidity: 44, count: 1 },
  ] }));
  await page.goto(url(`/sensors/${node}?from=2026-01-01T00:00:00Z&to=2099-01-01T00:00:00Z`));
  const written = () => page.evaluate(() => [...new Set(performance.getEntriesByType("mark").map(({ name }) => name))]
    .filter((name) => /^6\d(\.\d)?°$/.test(name)).map(parseFloat).sort((a, b) => a - b));
  await expect.poll(async () => (await written()).length).toBeGreaterThan(3);
  const values = await written();
  const steps = values.slice(1).map((value, i) => (value - (values[i] ?? 0)).toFixed(1));
  expect(new Set(steps).size, values.join(" ")).toBe(1);
});
