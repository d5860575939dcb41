// What must never be said or shown wrongly, each as it once was.
import { excursion } from "../tests/excursion";
import { answer, asked, hot, show } from "./answers";
import { pastIncidents, seedReadings } from "./seed";
import { ask, expect, expectAccessible, sendReading, shownTime, signUp, test, timeOfDay, tokenOf, url } from "./user";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;

test("5,000 old incidents that nobody has seen hide nothing of one that lasts", async ({ page }) => {
  const email = await signUp(page);
  const token = await tokenOf(page);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Hall" });
  const id = `truth-${room.id}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: "Rack 1", type: "ESP32-DHT22", room_id: room.id });
  await sendReading(id, 51, 40);
  await pastIncidents(email, 5000);
  await expect.poll(async () => (await ask<unknown[]>(token, "GET", "/api/v1/incidents?state=open")).length).toBe(1);
  await page.reload();
  await expect(page.getByText(/Hall is too hot: 51\.0 °C at Rack 1, limit 50\.0 °C, .*since .* Nobody has it\./))
    .toBeVisible();
  await expect(page.getByRole("link", { name: "5,001 incidents nobody has seen" })).toBeVisible();
  await expect(page).toHaveTitle("(5001) Now · Coldaisle");
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}overview-incident.png` });
});

test("counts agree in all places", async ({ page }) => {
  const email = await signUp(page);
  const token = await tokenOf(page);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Hall" });
  const id = `counts-${room.id}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: "Rack 1", type: "ESP32-DHT22", room_id: room.id });
  await sendReading(id, 51, 40);
  await pastIncidents(email, 3);
  await expect.poll(async () => (await ask<unknown[]>(token, "GET", "/api/v1/incidents?state=open")).length).toBe(1);
  const badge = page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Incidents" });
  const everywhere = async (waiting: number, open: number, taken: number) => {
    await page.goto(url());
    await expect(page).toHaveTitle(`(${waiting}) Now · Coldaisle`);
    await expect(badge).toContainText(`${waiting} nobody has seen`);
    await expect(page.getByRole("link", { name: `${waiting} incidents nobody has seen` })).toBeVisible();
    const { incident_counts: counts } = await ask<{ incident_counts: Record<string, number> }>(token,
      "GET", "/api/v1/overview");
    expect(counts).toMatchObject({ lasting: 1, open, taken, unseen: 3, to_be_seen: waiting });
    await page.goto(url("/incidents"));
    await expect(page.getByText(`1 incident lasts: nobody has ${open}, ${taken} taken, 0 in maintenance.`))
      .toBeVisible();
    await expect(page.getByRole("heading", { name: "Over, not seen: 3" })).toBeVisible();
    await expect(badge).toContainText(`${waiting} nobody has seen`);
    await page.getByRole("button", { name: "History" }).click();
    await expect(page.getByText("4 incidents, newest first.")).toBeVisible();
  };
  await everywhere(4, 1, 0);
  // Records of alerts are no incidents, and are named apart.
  await page.getByRole("button", { name: "Alert records" }).click();
  await expect(page.getByRole("row", { name: /High temperature detected/ })).toHaveCount(1);
  await page.goto(url());
  // One press takes it, from where it is seen first.
  await page.getByRole("button", { name: "I have it" }).click();
  await expect(page.getByText(/has it\.$/)).not.toContainText("Nobody");
  await everywhere(3, 0, 1);
});

test("rooms at 33 to 37 °C without rules are told of though old incidents wait to be seen", async ({ page }) => {
  await signUp(page);
  const warm = Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`s${i}`, { temperature: 33 + i / 3 }]));
  const { sentence, incident_counts: counts } = answer(1, 1);
  await show(page, answer(2, 12, warm, {
    incident_counts: { ...counts, unseen: 210, to_be_seen: 210 }, limits: [[]],
    sentence: { ...sentence, says: "outside_recommended", tone: "note", room: "Hall 1", sensor_id: "s11",
      sensor: "Rack 12", quantity: "temperature", value: 36.7, limit: 27, outside: 12 },
  }));
  await page.reload();
  await expect(
    page.getByText("No limit is broken, but 12 sensors are outside the recommended range: Hall 1, Rack 12 has 36.7 "
      + "°C", { exact: false }),
  ).toBeVisible();
  await expect(page.getByRole("link", { name: "210 incidents nobody has seen" })).toBeVisible();
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}overview-outside.png` });
});

test("a sensor that died hot is told as it was, and is neither hot nor reporting", async ({ page }) => {
  await signUp(page);
  const died = new Date(Date.now() - 360_000).toISOString();
  const base = hot("s0");
  const dead = { ...base, room_id: 1, room_name: "Hall 1",
    now: { ...base.now!, value: 45.1, value_at: died, silent: true, rate: null, sensors: 0, heard: 0 } };
  const sensors = { s0: { state: "critical", reports: false, temperature: 45.1, timestamp: died } } as const;
  await show(page, answer(1, 1, sensors, { incidents: [dead] }));
  for (const path of ["", "/wall"]) {
    await page.goto(url(path));
    await expect(page.locator(".says"))
      .toHaveText(new RegExp(
        String.raw`Hall 1 is too hot: last 45\.1 °C at Rack 7, no reading since ${shownTime}, limit 32\.0 °C, since `,
      ));
    await expect(page.locator("[data-sensor]")).toHaveClass(/blank/);
  }
});

test("what is expected is told of one sensor, its value, peak and limit alike, while another is "
  + "hotter", async ({ page }) => {
  await signUp(page);
  const [earliest, latest] = [9, 14].map((minutes) =>
    new Date(Date.now() + minutes * 60_000).toISOString()) as [string, string];
  const of = { kind: "forecast", sensor_id: "s1", sensor_name: "Rack 2", limit: 27, peak: 26.1,
    reason: "passes 27 °C in 9 to 14 min" } as const;
  const base = hot("s1");
  const expected = hot("s1", {
    room_id: 1, room_name: "Hall 1", phase: "expected", severity: "warning", worst: { ...base.worst, ...of },
    now: { ...base.now!, value: 26.1, rate: 0.3, next_limit: 27, earliest, latest, sensors: 1, heard: 12, standing: 0 },
  });
  await show(page, answer(1, 12, { s0: { temperature: 26.8 }, s1: { temperature: 26.1 } }, { incidents: [expected] }));
  await page.route(/\/api\/v1\/incidents\/1$/, (route) => route.fulfill({ json: { ...expected, timeline: [] } }));
  await page.route(/\/api\/v1\/excursions\?/, (route) =>
    route.fulfill({ json: [excursion({ ...of, earliest, latest })] }));
  const passes = String.raw`passes 27\.0 °C ${timeOfDay} to ${timeOfDay}`;
  const told = new RegExp(String.raw`26\.1 °C at Rack 2, limit 27\.0 °C, .*${passes}`);
  await page.goto(url());
  await expect(page.getByRole("link", { name: /^Rack 1, 26\.8 °C/ })).toBeVisible();
  await expect(page.locator(".says")).toHaveText(told);
  await page.goto(url("/incidents"));
  await expect(page.getByRole("row", { name: /Hall 1 will be too hot/ })).toContainText(told);
  await page.getByRole("link", { name: /Hall 1 will be too hot/ }).click();
  await expect(page.locator(".facts .says")).toHaveText(told);
  const row = page.getByRole("row", { name: /^Passes 27 °C in 9 to 14 min/ });
  await expect(row).toContainText("26.1 °C");
  await expect(row.getByRole("link", { name: "Rack 2" })).toBeVisible();
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
  await last.hover({ position: { x: 300, y: 40 } });
  const head = page.getByRole("columnheader", { name: /^At the cursor/ });
  await expect(head).toBeInViewport();
  expect(await head.evaluate((own) => own.contains(document.elementFromPoint(own.getBoundingClientRect().x + 2,
    own.getBoundingClientRect().y + 2))), "below the bar of the page").toBe(true);
  await page.screenshot({ path: `${pictures}readout.png` });
});

test("an incident is shown though no sensor is left", async ({ page }) => {
  await signUp(page);
  await show(page, answer(1, 0, {}, { incidents: [hot("s1")] }));
  await page.goto(url());
  await expect(page.locator(".sentence").getByRole("link", { name: "Open" })).toBeVisible();
});

test("a drill is of what was shown, though that falls silent or comes second before the press", async ({ page }) => {
  await signUp(page);
  await show(page, answer(1, 3));
  const rules = [7].map((id) => ({
    id, quantity: "temperature", direction: "above", limit: 20 + id, for_s: 0, clear_margin: 0, clear_for_s: 0,
    severity: "warning", enabled: true, room_id: null, sensor_id: null, threshold: false, version: 1,
  }));
  await page.route(/\/api\/v1\/rules$/, (route) => route.fulfill({ json: rules }));
  await page.clock.install();
  await page.goto(url("/drills"));
  await page.getByRole("button", { name: "Start a drill" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByLabel("Sensor")).toHaveValue("s0");
  await expect(dialog.getByLabel("Rule to test")).toHaveValue("7");
  rules.unshift({ ...rules[0]!, id: 6 });
  await show(page, answer(1, 3, { s0: { state: "silent" } }, { incidents: [hot("s1")] }));
  await page.clock.runFor(61_000);
  await expect(page).toHaveTitle(/^\(1\) Drills/);
  await page.evaluate(() => window.dispatchEvent(new Event("visibilitychange"))); // looked at again
  await expect(dialog.getByLabel("Rule to test").getByRole("option")).toHaveCount(2);
  await page.route(/\/drills$/, (route) => route.fulfill({ status: 500, json: { detail: "Not today" } }));
  const sent = page.waitForRequest((request) => request.method() === "POST" && /\/drills$/.test(request.url()));
  await dialog.getByRole("button", { name: "Start" }).click();
  expect((await sent).postDataJSON()).toMatchObject({ sensor_id: "s0", rule_id: 7 });
});

test("what is as of yesterday has its day", async ({ page }) => {
  await page.clock.install();
  await signUp(page);
  await show(page, answer(1, 3));
  await page.reload();
  await expect(page.getByText("Nothing is wrong", { exact: false })).toBeVisible();
  await page.route(asked, (route) => route.abort("connectionreset"));
  await page.clock.fastForward("25:00:00"); // as long as a day is whose clocks are set back
  await page.clock.runFor(5000);
  await expect(page.locator(".live")).toHaveText(new RegExp(String.raw`as of \d+ \w+( \d{4})?, ${timeOfDay}$`));
  await expect(page.locator(".sentence")).toContainText(new RegExp(String.raw`As of \d+ \w+( \d{4})?, ${timeOfDay}: `));
});

test("a path that is nothing is a page for people and JSON for programs", async ({ page }) => {
  await signUp(page);
  const response = await page.goto(url("/nothing"));
  expect(response?.status()).toBe(404);
  await expect(page.getByRole("heading", { name: "There is no such page", level: 1 })).toBeVisible();
  const program = await fetch(url("/nothing"), { headers: { Accept: "application/json" } });
  expect([program.status, program.headers.get("content-type")]).toEqual([404, "application/json"]);
});
