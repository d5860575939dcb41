// A phone at night: what an operator must read is within its width, whatever rooms are called.
import type { Locator } from "@playwright/test";
import { answer, hot, show } from "./answers";
import { ask, expect, expectAccessible, incidentOf, sendReading, signUp, test, tokenOf, url } from "./user";

test.use({ viewport: { width: 390, height: 844 } });

const long = "Rechenzentrum Nord-Ost, Untergeschoss, neben der Notstromversorgung";
const arabic = "غرفة الخوادم";

/** Whether nothing lies over an element, from its first pixels to its last. */
const uncovered = (element: Locator) => element.evaluate((own) => {
  const { x, y, width, height } = own.getBoundingClientRect();
  return [2, height / 2, height - 2].every((down) => own.contains(document.elementFromPoint(x + width / 2, y + down)));
});

test("state, verdicts and values are read without scrolling to the side", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: long });
  const node = `phone-${Date.now()}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id: node, name: "Rack 1", type: "DHT22", room_id: room.id });
  await sendReading(node, 51, 40);
  await page.goto(url("/rooms"));
  await expect(page.getByText("Critical", { exact: true })).toBeInViewport({ ratio: 1 });
  await expect(page.getByText("51.0 °C")).toBeInViewport({ ratio: 1 });
  await page.goto(url("/persons"));
  await expect(page.getByRole("button", { name: /^Change role/ })).toBeInViewport({ ratio: 1 });
  await page.goto(url("/incidents?state=alerts"));
  await expect(page.getByRole("button", { name: /^Acknowledge/ })).toBeInViewport({ ratio: 1 });
  await page.getByRole("button", { name: /^Acknowledge/ }).press("Enter");
  await expect(page.getByText("Acknowledged", { exact: true })).toBeVisible();
  await expect(page.getByRole("link", { name: "Rack 1" }), "the button is gone").toBeFocused();
  await page.goto(url("/incidents"));
  await page.getByRole("link", { name: `${long} is too hot` }).click();
  const excursions = page.getByRole("region", { name: "Excursions" });
  await excursions.getByText("lasts").scrollIntoViewIfNeeded();
  for (const text of ["critical", "51.0 °C", "lasts", "Rack 1"]) {
    await expect(excursions.getByText(text, { exact: true }), text).toBeInViewport({ ratio: 1 });
  }
  await expectAccessible(page);
  await page.goto(url(`/sensors/${node}`));
  for (const name of ["Temperature", "Humidity", "Dew point"]) {
    const header = page.locator(".readout").getByRole("columnheader", { name });
    await header.scrollIntoViewIfNeeded();
    await expect(header, name).toBeInViewport({ ratio: 1 });
  }
});

test("neither a name of 120 letters nor text twice as large makes a page wider", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  const name = "W".repeat(120);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name });
  const node = `wide-${room.id}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor",
    { id: node, name: name.slice(40), type: "DHT22", room_id: room.id });
  await sendReading(node, 51, 40);
  const incident = await incidentOf(token, node);
  for (const path of ["setup", `rooms/${room.id}`, `sensors/${node}`, `incidents/${incident}`]) {
    await page.goto(url(`/${path}`));
    await expect(page.getByText(name, { exact: false }).first()).toBeVisible();
    await expect(page.locator(".loading")).toHaveCount(0);
    for (const size of ["100%", "200%"]) {
      const width = page.evaluate((fontSize) => {
        document.documentElement.style.fontSize = fontSize;
        return document.documentElement.scrollWidth;
      }, size);
      expect(await width, `${path}, text of ${size}`).toBe(390);
    }
  }
  const happened = page.locator(".timeline li").first();
  expect(await happened.evaluate(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth), "what happened").toBe(0);
  await page.evaluate(() => { document.documentElement.style.fontSize = ""; });
  const excursions = page.getByRole("group", { name: "Excursions" });
  expect(await excursions.evaluate(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth), "sensors").toBe(0);
  await page.getByRole("button", { name: /^Snooze/ }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByLabel("Until")).toBeInViewport({ ratio: 1 });
  expect(await dialog.evaluate(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth), "dialog").toBe(0);
  await page.goto(url("/wall"));
  const highest = page.locator(".peek strong");
  for (const [width, height] of [[390, 844], [320, 568], [1920, 1080]] as const) {
    await page.setViewportSize({ width, height });
    await highest.scrollIntoViewIfNeeded();
    await expect(highest).toBeInViewport({ ratio: 1 });
    const left = await highest.evaluate((value) => value.parentElement!.getBoundingClientRect().right
      - value.getBoundingClientRect().right - parseFloat(getComputedStyle(value).fontSize));
    expect(left, `what an ellipsis leaves of ${width} pixels`).toBeGreaterThanOrEqual(0);
  }
  const title = page.locator(".wall .rooms h2");
  await title.getByRole("link").focus();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Shift+Tab");
  await expect(title, "the focus is seen around the part of the name that is").toHaveCSS("outline-style", "solid");
});

test("neither the keyboard's focus nor the session's end is behind a bar", async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 500 });
  await signUp(page);
  const others = Array.from({ length: 5 }, (_, i) => hot("s2", { id: i + 2, room_name: `Hall ${i + 5}` }));
  const probe = { late: true, lateness_s: 3900, published: new Date().toISOString() };
  await show(page, answer(4, 12, {}, { incidents: [hot("s36"), ...others], probe }));
  const focused = page.locator("main :focus");
  const walk = async () => {
    await page.reload();
    await expect(page.getByRole("article", { name: "Hall 9 is too hot" })).toBeVisible();
    await page.locator(".sentence a").first().focus();
    for (const key of ["Tab", "Shift+Tab"]) {
      for (let i = 0; i < 8; i++) {
        await page.keyboard.press(key);
        expect(await uncovered(focused), `${key} to ${await focused.textContent()}`).toBe(true);
      }
    }
  };
  await walk();
  for (const [width, height] of [[320, 500], [320, 160]] as const) { // the latter is a laptop's at 400 %
    await page.setViewportSize({ width, height });
    await page.evaluate(() => {
      const kept = JSON.parse(sessionStorage.getItem("coldaisle.session") ?? "{}") as object;
      sessionStorage.setItem("coldaisle.session", JSON.stringify({ ...kept, expires: Date.now() + 170_000 }));
    });
    await walk();
    await expect(page.locator(".top"), "one line, however late it is").toHaveCSS("height", "48px");
    expect(await uncovered(page.getByRole("button", { name: "Stay signed in" }))).toBe(true);
  }
});

test("an entry of the audit log is a line of who did what, below when", async ({ page }) => {
  await page.setViewportSize({ width: 360, height: 740 });
  await signUp(page);
  await page.goto(url("/audit"));
  const entry = page.locator("tbody tr").filter({ hasText: "registered the account" });
  const [when, what, show] = await Promise.all(["time", "td:nth-child(2)", "summary"].map((part) =>
    entry.locator(part).evaluate((element) => element.getBoundingClientRect().toJSON() as DOMRect)));
  expect(what!.width).toBeGreaterThan(250);
  expect(what!.top).toBeGreaterThanOrEqual(show!.bottom);
  expect(when!.top).toBeLessThan(show!.bottom);
  await entry.locator("summary").click();
  expect(await entry.locator("details").evaluate(({ clientWidth }) => clientWidth)).toBeGreaterThan(250);
});

test("names of 80 letters hide neither what burns nor who has it", async ({ page }) => {
  await signUp(page);
  const name = "W".repeat(80);
  const base = hot("s36", { state: "taken", taken_by: name, comment: name, room_name: name });
  const worst = { ...base.worst, sensor_name: name };
  await show(page, answer(4, 12, {}, { incidents: [{ ...base, worst }, { ...base, worst, id: 2 }] }));
  for (const [path, parts] of [["/", ".says, .incident-card"], ["/incidents", ".incidents td"]] as const) {
    await page.goto(url(path));
    await expect(page.locator(parts).first()).toContainText(name);
    const widths = await page.locator(parts).evaluateAll((all) =>
      all.map(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth));
    expect(Math.max(...widths), `${path}: what is cut off`).toBe(0);
  }
});

test("buttons of a verdict are words, not letters one below the other", async ({ page }) => {
  await signUp(page);
  await page.route(/\/api\/v1\/excursions\?/, (route) => route.fulfill({ json: [{
    id: 1, incident_id: 1, kind: "anomaly", state: "lasting", severity: "warning", sensor_id: "s1",
    sensor_name: "Rack 1", quantity: "temperature", direction: null, limit: null, peak: 26.9, reopened: 0,
    reason: "the room's temperature (8 sensors) rose 1.9 °C in 5 min; it usually stays within 1.5 °C at this hour",
    start_time: new Date().toISOString(), last_time: new Date().toISOString(), end_time: null, late: false,
    resolution: null, band_low: 22.7, band_high: 25.5, probability: null, earliest: null, latest: null, verdict: null,
  }] }));
  const token = await tokenOf(page);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Hall" });
  await ask(token, "POST", "/api/v1/sensors/new_sensor",
    { id: `verdict-${room.id}`, name: "Rack 1", type: "DHT22", room_id: room.id });
  await page.goto(url(`/sensors/verdict-${room.id}`));
  const buttons = page.getByRole("group", { name: "Was this anomaly right?" }).getByRole("button");
  await expect(buttons).toHaveCount(3);
  const heights = await buttons.evaluateAll((all) => all.map((button) => button.getBoundingClientRect().height));
  expect(Math.max(...heights)).toBeLessThanOrEqual(44);
});

test("a name from right to left leaves values where they belong", async ({ page }) => {
  await page.setViewportSize({ width: 1440, height: 900 });
  await signUp(page);
  await show(page, answer(4, 12, { s36: { state: "critical", temperature: 35, name: arabic } }, {
    incidents: [hot("s36", { worst: { ...hot("s36").worst, sensor_name: arabic } })],
  }));
  await page.reload();
  await expect(page.locator(".says")).toContainText(arabic);
  const cell = page.locator("[data-sensor=s36]");
  await cell.hover();
  const peek = page.locator(".room", { has: cell }).locator(".peek");
  await expect(peek).toContainText(arabic);
  const left = (text: string) => peek.evaluate((element, wanted) => {
    const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const node = texts.currentNode as Text;
      if (!node.data.includes(wanted)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      return range.getBoundingClientRect().left;
    }
    return NaN;
  }, text);
  expect(await left("35.0 °C")).toBeLessThan(await left(arabic));
  expect(await left(arabic)).toBeLessThan(await left("45.0 %"));
});

test("the wall on a phone has its rooms one below the other", async ({ page }) => {
  await signUp(page);
  await show(page, answer(3, 8, { s1: { state: "critical", temperature: 35 } }, { incidents: [hot("s1")] }));
  await page.goto(url("/wall"));
  await expect(page.locator(".cells .cell")).toHaveCount(24);
  const boxes = await page.locator(".wall .room").evaluateAll((rooms) =>
    rooms.map((room) => room.getBoundingClientRect()).map(({ top, bottom }) => ({ top, bottom })));
  for (const [i, { top }] of boxes.entries()) {
    const gap = i === 0 ? 0 : top - (boxes[i - 1]?.bottom ?? 0);
    expect(gap, `above room ${i + 1}`).toBeGreaterThanOrEqual(0);
    expect(gap, `above room ${i + 1}`).toBeLessThan(40);
  }
});

test.describe("a laptop at 400 %", () => {
  test.use({ viewport: { width: 341, height: 164 } });
  test("has its pixels for the page", async ({ page }) => {
    await signUp(page);
    await page.goto(url("/rules"));
    await page.getByRole("button", { name: "Add these rules" }).scrollIntoViewIfNeeded();
    await expect(page.getByRole("navigation", { name: "Pages" })).not.toBeInViewport();
    await expect(page.getByRole("link", { name: "Coldaisle" })).not.toBeInViewport();
  });
});
