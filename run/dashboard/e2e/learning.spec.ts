// What learning finds, from the simulator to a person's verdict. Readings are the
// simulator's, each with a time and a window of its own, so that hours of a site are
// there at once, however fast the machine is.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "@playwright/test";
import { capital } from "../src/logic/format";
import { answer, show } from "./answers";
import { query, seedReadings } from "./seed";
import { ask, expect, expectAccessible, signUp, test, timeOfDay, tokenOf, url } from "./user";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;
const excursions = (page: Page) => page.getByRole("region", { name: "Excursions" });
const patience = 120_000;
const step = 30;

interface Row { at: number; temperature: number; humidity: number }

/** Four hours of simulated nodes with these faults, by node. Their time begins at this one. */
function simulate(faults: string[]): Map<string, Row[]> {
  const folder = mkdtempSync(join(tmpdir(), "coldaisle-site-"));
  try {
    const file = join(folder, "faults.csv");
    writeFileSync(file, ["kind,cause,room,node,start,end,peak,peak_humidity,constant_s", ...faults, ""].join("\n"));
    const root = new URL("../../../", import.meta.url).pathname;
    const lines = execFileSync("go", ["run", "./run/tools/ml", "simulate", "-nodes", "6", "-readings", "480", "-with",
      file], { cwd: root, encoding: "utf8" })
      .trim().split("\n").slice(1);
    const nodes = new Map<string, Row[]>();
    for (const line of lines) {
      const [node = "", time = "", temperature, humidity] = line.split(",");
      nodes.set(
        node, [...nodes.get(node) ?? [],
          { at: Date.parse(time), temperature: Number(temperature), humidity: Number(humidity) }],
      );
    }
    return nodes;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const began = "2026-03-02T01:00:00Z";
const ends = "2026-03-02T04:00:00Z";

/** A customer with a sensor in a room. */
async function sensor(token: string, id: string, room: string, name: string): Promise<void> {
  const made = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: room });
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name, type: "DHT22", room_id: made.id });
}

/** The rows until the present one as if that were of now: kept as history, and the newest given to
 * ingest and detection as Pub/Sub pushes it. */
async function arrive(node: string, rows: Row[], present: number): Promise<void> {
  const past = rows.slice(0, present + 1);
  const newest = past.at(-1) ?? { at: 0, temperature: 0, humidity: 0 };
  const now = Date.now();
  const ago = past.map(({ at }) => (newest.at - at) / 1000);
  await seedReadings([], 86_400, 0, 86_400); // the days of the table
  await query("UPDATE open_holds SET held_from = now() - interval '1 day' WHERE node_id = $1", [node]);
  await query(
    `INSERT INTO sensor_data.readings (node_id, timestamp, message_id, temperature, humidity)
    SELECT $1, to_timestamp($2::float8 - ago), 'past' || ago, temperature, humidity FROM unnest($3::float8[],
    $4::float8[], $5::float8[]) AS r (ago, temperature, humidity) WHERE ago > 0`,
    [node, now / 1000, ago, past.map(({ temperature }) => temperature), past.map(({ humidity }) => humidity)],
  );
  await query( // the day of the node, which ingest keeps beside its history
    `INSERT INTO node_slots (channel, node_id, slot, starts, last_at, last_temperature, last_humidity)
    SELECT DISTINCT ON (starts) 0, node_id, extract(epoch FROM starts)::bigint / 600 % 144, starts, timestamp,
      temperature, humidity
    FROM (
      SELECT *, date_bin('10 minutes', timestamp, 'epoch') AS starts FROM sensor_data.readings WHERE node_id = $1) AS r
    WHERE timestamp > now() - interval '23 hours' ORDER BY starts, timestamp DESC`,
    [node],
  );
  const window = past.slice(-121, -1);
  const message = {
    message_id: crypto.randomUUID().slice(0, 8), node_id: node, temperature: newest.temperature,
    humidity: newest.humidity, timestamp: new Date(now).toISOString(),
    recent: { age_s: ago.slice(-121, -1), temperature: window.map(({ temperature }) => temperature),
      humidity: window.map(({ humidity }) => humidity) },
  };
  for (const consumer of ["ingest", "detect"]) {
    const pushed = await fetch(`${process.env.COLDAISLE_FUNCTIONS}${consumer}`, {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        subscription: `projects/coldaisle-local/subscriptions/${consumer}`,
        message: {
          data: btoa(JSON.stringify(message)), messageId: message.message_id, publishTime: new Date().toISOString(),
        },
      }),
    });
    expect(pushed.status, `${consumer} takes a reading of ${node}`).toBe(204);
  }
}

interface Found {
  id: number; incident_id: number; reason: string; verdict: string | null; peak: number | null; band_low: number | null;
}

async function found(token: string, kind: string, node: string): Promise<Found> {
  let all: Found[] = [];
  await expect.poll(
    async () => (all = await ask<Found[]>(token, "GET", `/api/v1/excursions?kind=${kind}&sensor_id=${node}`)).length,
    { timeout: patience },
  ).toBe(1);
  const [one] = all;
  if (!one) throw new Error("no excursion");
  return one;
}

/** Signs up somebody whose temperatures may reach a limit. */
async function customer(page: Page, limit: number): Promise<string> {
  await signUp(page);
  const token = await tokenOf(page);
  const { customerID } = await page.evaluate(() =>
    JSON.parse(sessionStorage.getItem("coldaisle.session") ?? "{}") as { customerID: number });
  await ask(token, "POST", `/api/v1/alerts/thresholds/${customerID}`, { max_temperature: limit, max_humidity: 95 });
  return token;
}

test("a loss of cooling is told of minutes before the limit", async ({ page }) => {
  test.setTimeout(3 * patience);
  const token = await customer(page, 32);
  const node = `cooling-${Date.now()}`;
  await sensor(token, node, "Hall", "Rack 1");
  const rows = simulate([`cooling,a failed compressor,room1,,${began},${ends},20,0,3600`]).get("room1-node1") ?? [];
  const passed = rows.findIndex(({ temperature }) => temperature >= 32);
  const lead = 11 * 60;
  expect(passed).toBeGreaterThan(0);
  // What hours of readings have taught of the width of the node's intervals.
  await query(
    "INSERT INTO node_learning (channel, node_id, interval_width, judged_by) VALUES (0, $1, 0.4, 'window')", [node],
  );
  await arrive(node, rows, passed - lead / step);

  const forecast = await found(token, "forecast", node);
  const [, from, to] = /^passes 32 °C in (\d+) to (\d+) min$/.exec(forecast.reason) ?? [];
  expect(Number(from) * 60, forecast.reason).toBeGreaterThanOrEqual(300);
  expect(Number(from) * 60, forecast.reason).toBeLessThanOrEqual(lead);
  expect(Number(to) * 60, forecast.reason).toBeGreaterThanOrEqual(lead);
  expect(Number(to), forecast.reason).toBeLessThan(30);
  expect(forecast.peak).toBeLessThan(32);
  expect(await ask<unknown[]>(token, "GET", `/api/v1/excursions?kind=threshold&sensor_id=${node}`)).toEqual([]);

  await page.goto(url(`/sensors/${node}?range=1h`));
  const row = excursions(page).getByRole("row", { name: capital(forecast.reason) });
  await expect(row).toContainText(new RegExp(`Passes it ${timeOfDay} to ${timeOfDay}`));
  await expect(row.getByRole("link", { name: /^Open incident/ })).toBeVisible();
  await expect(row.getByRole("group", { name: "Was this anomaly right?" })).toHaveCount(0);
  const chart = page.getByRole("img", { name: /^Temperature from/ });
  await expect(chart)
    .toHaveAccessibleName(new RegExp(String.raw`expected to pass 32\.0 °C between ${timeOfDay} and ${timeOfDay}`),
      { timeout: patience });
  await page.screenshot({ path: `${pictures}cooling-lost.png`, fullPage: true });
});

test("anomalies have a reason and a band, and are judged right, wrong and expected", async ({ page }) => {
  test.setTimeout(3 * patience);
  const token = await customer(page, 60);
  const stamp = Date.now();
  // The present is half an hour after the faults began.
  const present = (90 * 60) / step;
  const at = (row: number) => new Date(Date.parse("2026-03-02T00:00:00Z") + row * step * 1000).toISOString();
  const site = simulate([
    `spike,a loose wire,room1,room1-node1,${at(present - 1)},${at(present + 9)},25,0,0`,
    `spike,a door,room1,room1-node2,${at(present - 1)},${at(present + 9)},0,45,0`,
    `spike,a filter that is dried,room1,room1-node3,${at(present - 1)},${at(present + 9)},25,0,0`,
  ]);
  const rose = /^temperature rose \d+\.\d °C in \d+ min; it usually stays within /;
  const cases = [
    { node: "room1-node1", room: "Attic", name: "Door", reason: rose,
      button: "Right", verdict: "right", feedback: "ok" },
    { node: "room1-node2", room: "Barn", name: "Window", reason: /^dew point rose \d+\.\d °C in /, button: "Wrong",
      verdict: "wrong", feedback: "not_ok" },
    { node: "room1-node3", room: "Cellar", name: "Stairs", reason: rose,
      button: "Expected", verdict: "expected", feedback: "not_ok" },
  ];
  for (const { node, room, name } of cases) {
    await sensor(token, `${node}-${stamp}`, room, name);
    await arrive(`${node}-${stamp}`, site.get(node) ?? [], present);
  }
  for (const { node, reason, button, verdict, feedback } of cases) {
    const id = `${node}-${stamp}`;
    const anomaly = await found(token, "anomaly", id);
    expect(anomaly.reason).toMatch(reason);
    expect(anomaly.verdict).toBeNull();
    await page.goto(url(`/sensors/${id}`));
    const row = excursions(page).getByRole("row", { name: capital(anomaly.reason) });
    if (reason !== rose)
      await expect(row).toContainText(/One hour in (more than a million|[\d,]+) when nothing is wrong/);
    if (anomaly.band_low !== null) await expect(row).toContainText("Usual: ");
    const judging = row.getByRole("group", { name: "Was this anomaly right?" });
    for (const other of ["Right", "Wrong", "Expected"]) {
      await expect(judging.getByRole("button", { name: other, exact: true })).toHaveAttribute("aria-pressed", "false");
    }
    await expectAccessible(page);
    await judging.getByRole("button", { name: button, exact: true }).click();
    await expect(judging.getByRole("button", { name: button, exact: true }))
      .toHaveAttribute("aria-pressed", "true", { timeout: patience });
    expect((await found(token, "anomaly", id)).verdict).toBe(verdict);
    const predictions = await ask<{ feedback: string; anomaly_predicted: boolean }[]>(token, "GET",
      `/api/v1/prediction-feedback?sensor_id=${id}`);
    expect(predictions).toMatchObject([{ feedback, anomaly_predicted: true }]);
    await page.screenshot({ path: `${pictures}judged-${verdict}.png` });
  }
  // What was unusual is drawn against what is usual.
  expect((await found(token, "anomaly", `room1-node1-${stamp}`)).band_low).not.toBeNull();
  await page.goto(url(`/sensors/room1-node1-${stamp}?range=1h`));
  await expect(page.getByRole("img", { name: /^Temperature from/ }))
    .toHaveAccessibleName(/1 excursion/, { timeout: patience });
});

test("all anomalies of an incident are judged by one press", async ({ page }) => {
  test.setTimeout(3 * patience);
  const token = await customer(page, 60);
  const present = (90 * 60) / step;
  const at = (row: number) => new Date(Date.parse("2026-03-02T00:00:00Z") + row * step * 1000).toISOString();
  const nodes = ["room1-node1", "room1-node3"];
  const site = simulate(nodes.map((node) => `spike,a wire,room1,${node},${at(present - 1)},${at(present + 9)},25,0,0`));
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Attic" });
  const stamp = Date.now();
  const ids = nodes.map((node) => `${node}-${stamp}`);
  for (const id of ids) {
    await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: id, type: "DHT22", room_id: room.id });
  }
  for (const node of nodes) await arrive(`${node}-${stamp}`, site.get(node) ?? [], present);
  const incidents = new Set<number>();
  for (const id of ids) incidents.add((await found(token, "anomaly", id)).incident_id);
  expect(incidents.size).toBe(1);
  await page.goto(url(`/incidents/${[...incidents].join()}`));
  const judging = page.getByRole("group", { name: "Were all anomalies right?" });
  await expect(judging).toContainText("Were all 2 anomalies right?");
  await judging.getByRole("button", { name: "Expected", exact: true }).click();
  await expect(page.getByRole("button", { name: "Expected", exact: true, pressed: true }))
    .toHaveCount(3, { timeout: patience }); // of both, and of each
  await expect(judging).toContainText("All 2 anomalies. Somebody knew of it");
  for (const id of ids) expect((await found(token, "anomaly", id)).verdict).toBe("expected");
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}judged-together.png`, fullPage: true });
});

test("a verdict that training has used stays, and the page says so", async ({ page }) => {
  test.setTimeout(3 * patience);
  const token = await customer(page, 60);
  const id = `used-${Date.now()}`;
  await sensor(token, id, "Attic", "Door");
  const rows = simulate([`spike,a loose wire,room1,room1-node1,2026-03-02T01:29:30Z,2026-03-02T01:34:30Z,25,0,0`])
    .get("room1-node1") ?? [];
  await arrive(id, rows, 180);
  const anomaly = await found(token, "anomaly", id);
  await ask(token, "PUT", `/api/v1/excursions/${anomaly.id}/verdict`, { verdict: "right" });
  await query("UPDATE prediction_feedback SET used_in_training = true WHERE sensor_id = $1", [id]);
  await page.goto(url(`/sensors/${id}`));
  const judging = page.getByRole("group", { name: "Was this anomaly right?" });
  await judging.getByRole("button", { name: "Wrong" }).click();
  await expect(judging.getByRole("alert")).toContainText("already used in training", { timeout: patience });
  await expect(judging.getByRole("button", { name: "Right" })).toHaveAttribute("aria-pressed", "true");
});

test("where learning does not judge, or only in part, the page says why", async ({ page }) => {
  await signUp(page);
  await show(page, answer(1, 4, {
    s0: { judged_by: "window" }, s1: { judged_by: "live_state" }, s2: { judged_by: "learning" },
    s3: { judged_by: "nothing" },
  }));
  await page.goto(url());
  await expect(page.getByText(
    "2 sensors not judged for anomalies yet, 1 sensor judged for anomalies in part: their own pages say why.",
  )).toBeVisible();
  await expectAccessible(page);
  await show(page, answer(1, 4));
  await page.reload();
  await expect(page.getByRole("heading", { name: "Hall 1" })).toBeVisible();
  await expect(page.getByText("judged", { exact: false })).toHaveCount(0);

  const token = await tokenOf(page);
  const id = `unjudged-${Date.now()}`;
  await sensor(token, id, "Attic", "Door");
  const reasons = [["live_state", /^Judged for anomalies in part: its gateway, of another maker,/], [
    "learning", new RegExp(String.raw`^Not judged for anomalies yet: learning since ${timeOfDay}\. It takes two hours`),
  ], ["nothing", /^Not judged for anomalies: learning has not seen/]] as const;
  for (const [judged_by, why] of reasons) {
    const body = answer(1, 1, {
      s0: { judged_by, ...(judged_by === "learning" && { learning_since: new Date().toISOString() }) },
    });
    body.sensors.forEach((one) => { one.id = id; });
    await show(page, body);
    await page.goto(url(`/sensors/${id}`));
    await expect(page.getByText(why)).toBeVisible();
  }
});

test("how many false alarms are stood is set, within its bounds", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  await page.goto(url("/settings"));
  const section = page.getByRole("region", { name: "False alarms of learning" });
  const field = section.getByLabel("False alarms you accept, per sensor and month");
  await expect(field).toHaveValue("1");
  await expectAccessible(page);
  await field.fill("0.1");
  await section.getByRole("button", { name: "Save" }).click();
  expect(await field.evaluate((input: HTMLInputElement) => input.validity.rangeUnderflow)).toBe(true);
  expect(await ask(token, "GET", "/api/v1/ml/settings")).toEqual({ false_alarms_per_month: 1, extrapolated: false });
  await field.fill("0.5");
  await expect(section.getByText("estimated, not counted", { exact: false })).toBeVisible();
  await section.getByRole("button", { name: "Save" }).click();
  await expect(section.getByText("Saved. Detection follows within 15 seconds.")).toBeVisible();
  await page.reload();
  await expect(field).toHaveValue("0.5");
  expect(await ask(token, "GET", "/api/v1/ml/settings")).toEqual({ false_alarms_per_month: 0.5, extrapolated: true });
});
