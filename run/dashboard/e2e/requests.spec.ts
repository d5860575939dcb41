// How many requests the pages make. The cost page (run/tools/cost) is computed from the
// same file that they are held to.
import { readFileSync } from "node:fs";
import type { Page, Request } from "@playwright/test";
import { ask, expect, incidentOf, sendReading, signUp, test, tokenOf, url } from "./user";
import { query, seedReadings } from "./seed";

type Counts = Record<string, number>;
const counted = JSON.parse(readFileSync(new URL("../../tools/cost/requests.json", import.meta.url), "utf8")) as {
  visits: Record<string, Counts>; five_minutes: Record<string, Counts>;
};

/** Requests to the API but for the overview, whose worker asks as often on each page. */
function watch(page: Page) {
  let asked: URL[] = [];
  const waiting = new Set<Request>();
  const ours = (address: string) => new URL(address).pathname.startsWith("/api/v1/") && !address.endsWith("/overview");
  page.on("request", (request) => {
    if (!ours(request.url())) return;
    asked.push(new URL(request.url()));
    waiting.add(request);
  });
  for (const end of ["requestfinished", "requestfailed"] as const) {
    page.on(end as "requestfinished", (request) => waiting.delete(request));
  }
  const count = (addresses: URL[]) => {
    const counts: Counts = {};
    for (const { pathname } of addresses) {
      const operation = pathname.replace(/\/\d+$/, "").split("/").slice(3, 5).join("/");
      counts[operation] = (counts[operation] ?? 0) + 1;
    }
    return counts;
  };
  return {
    forget: () => { asked = []; waiting.clear(); },
    idle: () => waiting.size === 0,
    all: () => count(asked),
    /** Without what was asked for anew, because it took so long. */
    different: () => count([...new Map(asked.map((address) => [address.href, address])).values()]),
  };
}

test("each page makes the requests that the cost page is computed from", async ({ page }) => {
  test.setTimeout(600_000);
  await signUp(page);
  const token = await tokenOf(page);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Room" });
  const id = `counted-${room.id}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: "Rack", type: "ESP32-DHT22", room_id: room.id });
  await seedReadings([id], 8 * 86_400, 60, 300);
  // Nothing is left of the first steps, which ask for more.
  await sendReading(id, 22, 40);
  // An incident, of another sensor.
  await ask(token, "POST", "/api/v1/sensors/new_sensor", {
    id: `hot-${room.id}`, name: "Rack 2", type: "ESP32-DHT22", room_id: room.id,
  });
  await sendReading(`hot-${room.id}`, 51, 40);
  await ask(token, "POST", "/api/v1/rules/preset", { preset: "ashrae_recommended" });
  await query(`
    INSERT INTO prediction_feedback (sensor_id, timestamp, predicted_temp, predicted_humidity, actual_temp,
    actual_humidity, anomaly_predicted, message_id)
    SELECT $1, now() - i * interval '1 hour', 23, 44, 23.2, 44.6, true, 'counted' || i FROM generate_series(1, 3) AS i`,
    [id]);
  const paths: Record<string, string> = {
    "overview": "/", "room": `/rooms/${room.id}`, "sensor": `/sensors/${id}`,
    "sensor, a week": `/sensors/${id}?range=7d`, "incidents": "/incidents",
    "incident": `/incidents/${await incidentOf(token, `hot-${room.id}`)}`, "predictions": "/predictions",
    "report": "/reports", "rules": "/rules", "maintenance": "/maintenance", "gateways": "/gateways", "audit": "/audit",
    "keys": "/keys", "account": "/account",
  };
  expect(Object.keys(counted.visits)).toEqual(Object.keys(paths));
  const watched = watch(page);
  for (const [name, path] of Object.entries(paths)) {
    watched.forget();
    await page.goto(url(path));
    await expect.poll(watched.different, { message: `a visit: ${name}` }).toEqual(counted.visits[name]);
    await expect(page.locator(".loading")).toHaveCount(0);
    await expect.poll(watched.idle).toBe(true);
    expect(watched.different(), `a visit: ${name}`).toEqual(counted.visits[name]);
  }
  // The page's clock goes on by less than half an hour in all, when the session would end.
  await page.clock.install();
  // The service's time goes on with it: no answer sets the page's clock back.
  await page.addInitScript(() => {
    const { get } = Headers.prototype;
    Headers.prototype.get = function (name) {
      return name === "Date" ? null : get.call(this, name);
    };
  });
  for (const [name, counts] of Object.entries(counted.five_minutes)) {
    watched.forget();
    await page.goto(url(paths[name]));
    // A busy browser rests in the midst of a visit, too.
    for (const [what, times] of Object.entries(counted.visits[name] ?? {})) {
      await expect.poll(() => watched.all()[what], `a visit: ${name}: ${what}`).toBeGreaterThanOrEqual(times);
    }
    await expect.poll(watched.idle).toBe(true);
    // The page's clock stands, and goes on only as we say: each answer has come before the next is asked for.
    // A chart's range ends at a full five minutes, of which exactly one then lies within, and the minute after it,
    // in which the chart looks at the clock.
    const soon = await page.evaluate(() => Date.now()) + 10_000;
    const phase = soon % 300_000;
    await page.clock.pauseAt(phase < 90_000 ? soon - phase + 90_000 : phase > 240_000 ? soon - phase + 390_000 : soon);
    const pass = async (seconds: number) => {
      await page.clock.runFor(1000 * seconds);
      await page.evaluate(() => 0); // what was asked is known
      await expect.poll(watched.idle).toBe(true);
    };
    await pass(1); // what the leap made the page ask
    watched.forget();
    for (let second = 0; second < 300; second += 5) await pass(5);
    // A range that moves while the machine is busy is asked for once more.
    const all: Record<string, number> = watched.all();
    expect(Object.keys(all).sort(), `five minutes: ${name}`).toEqual(Object.keys(counts).sort());
    for (const [what, times] of Object.entries(counts)) {
      expect([times, times + 1], `five minutes: ${name}: ${what}`).toContain(all[what]);
    }
    await page.clock.resume();
  }
});
