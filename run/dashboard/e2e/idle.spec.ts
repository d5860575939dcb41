// What a page asks for while nobody touches it.
import { asked as askedOverview } from "./answers";
import { ask, expect, incidentOf, sendReading, signUp, test, tokenOf, url } from "./user";
import { seedReadings } from "./seed";

/** The worker's: every 15 s by its own clock, which no test can move. */
const overviews = 4;

const answeredAnew = (question: string) => / \d+$/.test(question);

test("an idle page of any kind asks at most 8 times a minute, and hears 304 when nothing has "
  + "changed", async ({ page }) => {
  await page.clock.install();
  await signUp(page);
  const token = await tokenOf(page);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Hall" });
  const sensor = `idle-${room.id}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor", {
    id: sensor, name: "Rack 1", type: "ESP32-DHT22", room_id: room.id,
  });
  await seedReadings([sensor], 7200, 30, 60);
  await sendReading(sensor, 51, 40);
  const incident = await incidentOf(token, sensor);
  const open = new Set<unknown>(); // requests that began before this are not counted
  let known = new Set<string>();
  let again: string[] = [];
  let unchanged = 0;
  page.on("request", (request) => open.add(request));
  page.on("requestfailed", (request) => open.delete(request));
  page.on("response", (response) => {
    const { pathname, search } = new URL(response.url());
    const question = pathname + search;
    if (!pathname.startsWith("/api/") || askedOverview.test(pathname)) return;
    // A range that has moved is another question. A forecast for which there is no model yet is 404.
    if (known.has(question)) again.push(response.status() === 304 || pathname.includes("/ml/forecast/") ? question
      : `${question} ${response.status()}`);
    if (response.status() === 304) unchanged++;
    known.add(question);
  });
  page.on("requestfinished", (request) => open.delete(request));
  const quiet = () => expect.poll(() => open.size).toBe(0);
  for (const path of [
    "/", `/rooms/${room.id}`, `/sensors/${sensor}`, "/incidents", "/incidents?state=all", `/incidents/${incident}`,
    "/maintenance", "/rules", "/predictions", "/gateways", "/keys", "/audit", "/account",
    "/reports", "/rooms", "/incidents?state=alerts", "/setup", "/settings", "/wall",
  ]) {
    // What the service still found out of the last reading is a change: once more then, and no third time.
    for (let round = 0; round < 2; round++) {
      // A range moves each 5 minutes: not back and forth while the page's clock runs ahead of the service's.
      await expect.poll(() => Date.now() % 300_000, { timeout: 40_000 }).toBeLessThan(270_000);
      // The session does not end while minutes pass.
      await page.clock.setSystemTime(new Date());
      known = new Set();
      again = [];
      await page.goto(url(path));
      await expect(page.getByRole("heading", { level: 1 })).toBeAttached();
      for (let i = 0; i < 12; i++) {
        await quiet();
        await page.clock.runFor(15_000);
        await page.clock.setSystemTime(new Date());
      }
      await quiet();
      expect(again.length / 3 + overviews, `${path} asked a minute: ${again.join(", ")}`).toBeLessThanOrEqual(8);
      if (!again.some(answeredAnew)) break;
    }
    expect(again.filter(answeredAnew), path).toEqual([]);
  }
  expect(unchanged).toBeGreaterThan(20);
});

test("the overview is asked for four times a minute at most, and is 304", async ({ page }) => {
  await signUp(page);
  // What comes last asks, too, where it is late.
  await expect(page.getByRole("combobox", { name: "Search" })).toBeVisible();
  const answered: { at: number; status: number }[] = [];
  page.on("response", (response) => {
    if (askedOverview.test(response.url())) {
      answered.push({ at: response.request().timing().startTime, status: response.status() });
    }
  });
  // The overview's day moves on each 10 minutes: once anew then, and 304 again.
  const last = () => answered.slice(1).slice(-2);
  await expect.poll(() => last().map(({ status }) => status), { timeout: 100_000 }).toEqual([304, 304]);
  expect(answered.filter(({ status }) => status !== 304).length, "answered anew").toBeLessThanOrEqual(2);
  // By the browser's clock, which is no later when the machine is busy.
  const [before, after] = last();
  expect((after?.at ?? 0) - (before?.at ?? 0), "milliseconds between two").toBeGreaterThan(14_500);
});
