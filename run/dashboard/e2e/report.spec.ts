// The report of a month: on the page, on paper, and as a file.
import { readFile } from "node:fs/promises";
import { addRoom, addSensor, expect, expectAccessible, sendReading, signUp, test, url } from "./user";
import { query } from "./seed";
import { excursion } from "../tests/excursion";
import { incident } from "../tests/incident";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;

// Where it is noon: an hour ago was in the same month.
const hour = new Date().getUTCHours();
test.use({ timezoneId: `Etc/GMT${hour < 12 ? "-" : "+"}${Math.abs(hour - 12)}` });

test("a month of a room is shown, printed and saved", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Hall");
  const node = `report-${Date.now()}`;
  await addSensor(page, node, "Rack 1");
  await sendReading(node, 51, 40);
  await expect(page.getByRole("cell", { name: "51.0 °C", exact: true })).toBeVisible();
  // Ten minutes of another, hot, an hour ago.
  const at = new Date(Date.now() - 3_600_000);
  await query("UPDATE open_holds SET held_from = '-infinity' WHERE node_id = $1", [node]);
  await query(`INSERT INTO sensor_data.readings (node_id, timestamp, message_id, temperature, humidity)
    SELECT $1, $2::timestamptz + i * interval '1 minute', 'r' || i, CASE WHEN i < 10 THEN 33 ELSE 22 END,
    40 FROM generate_series(0, 10) AS i`,
    [node, at]);
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Reports" }).click();
  const hall = page.getByRole("row", { name: /^Hall/ }).first();
  await expect(hall).toContainText(/1\d min/);
  await expect(hall).toContainText(/\d+\.\d %/);
  await page.getByText("Sensors", { exact: true }).click();
  const row = page.getByRole("row", { name: /^Rack 1/ });
  await expect(row).toContainText("10 min");
  await expect(row).toContainText("22.0");
  await expect(row).toContainText("51.0");
  await expect(page.getByRole("cell", { name: /Temperature above 50.0 °C/ })).toBeVisible();
  await page.getByLabel("Room", { exact: true }).selectOption("Hall");
  await page.getByLabel("Allowable range", { exact: true }).selectOption("Allowable A4");
  await expect(page).toHaveURL(/room=\d+&allowable=ashrae_a4/);
  const heads = page.locator(".numbers thead th");
  expect(await heads.evaluateAll((all) => all.filter((head) => head.scrollWidth > head.clientWidth).length)).toBe(0);
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}report.png`, fullPage: true });
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download CSV" }).click();
  const text = await readFile(await (await download).path(), "utf8");
  expect(text).toContain(`Hall,${node},Rack 1,`);
  expect(text).toMatch(/Hall,too_hot,critical,[^,]+,,report-\d+,Rack 1,"?Temperature above 50.0 °C/);
  await page.evaluate(() => { document.documentElement.dataset.theme = "dark"; });
  await page.emulateMedia({ media: "print" });
  await expect(row, "dark on paper, whatever the screen is").toHaveCSS("color", "rgb(16, 32, 43)");
  await expect(page.getByRole("navigation", { name: "Pages" })).toBeHidden();
  await expect(page.getByRole("button", { name: "Print" })).toBeHidden();
  await expect(row).toBeVisible();
  await page.screenshot({ path: `${pictures}report-print.png`, fullPage: true });
});

test.describe("in a language of another calendar", () => {
  test.use({ locale: "fa-IR" });
  test("months have the names of what they are", async ({ page }) => {
    await signUp(page);
    await addRoom(page, "Hall");
    await page.goto(url("/reports"));
    const month = await page.getByLabel("Month", { exact: true }).inputValue();
    const name = new Intl.DateTimeFormat("fa-IR", { calendar: "gregory", month: "long", year: "numeric" })
      .format(Date.parse(`${month}-15`));
    await expect(page.getByRole("heading", { name: `All rooms, ${name}` })).toBeVisible();
  });
});

test("the report of a room that is gone says so, and is not saved", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Hall");
  await page.goto(url("/reports?room=999999999"));
  await expect(page.getByText("This room is gone.")).toBeVisible();
  await expect(page.getByRole("button", { name: "Download CSV" })).toBeDisabled();
});

test("every incident and silence of a month is listed, however many pages they are", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Hall");
  const at = new Date().toISOString();
  const over = { start_time: at, end_time: at, state: "over" } as const;
  const told = incident({ ...over, taken_by: "Ana", had_by: "Ana", taken_at: at, comment: "A door was open" });
  const drill = { ...told, id: 499, drill: true }; // is none
  const silence = excursion({ ...over, kind: "silence", sensor_name: "Rack 2", late: true });
  // As many as a page holds, and after them one more.
  await page.route(/\/api\/v1\/(incidents|excursions)\?/, (route) => {
    const { searchParams, pathname } = new URL(route.request().url());
    const first = searchParams.get("after") === null;
    const one = pathname.endsWith("incidents") ? told : silence;
    return route.fulfill({
      headers: first ? { Link: `<${pathname}?after=501>; rel="next"` } : {},
      json: Array.from({ length: first ? Number(searchParams.get("limit")) : 1 },
        (_, i): object => ({ ...one, ...(first ? { id: 1000 - i } : { id: 500, taken_by: null, taken_at: null }) }))
        .concat(first || one !== told ? [] : [drill]),
    });
  });
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Reports" }).click();
  const rows = (name: string) => page.getByRole("region", { name }).locator("tbody tr");
  await expect(rows("Incidents")).toHaveCount(501);
  await expect(rows("Incidents").last()).toContainText(
    /Hall A.*Too hot.*critical.*Temperature above 27.0 °C for 12 min, peak 34.2 °C.*Rack 7.*Ana, then nobody.*A d/,
  );
  await expect(rows("Silences")).toHaveCount(501);
  await expect(rows("Silences").last()).toContainText(/Rack 2.*Hall A.*delivered late/);
  await page.screenshot({ path: `${pictures}report-told.png` });
});

test("a month of 2,000 sensors is asked for two rooms at a time, a room in parts, and says which room is "
  + "missing", async ({ page }) => {
  await signUp(page);
  const rooms = Array.from({ length: 10 },
    (_, i) => ({ id: i + 1, name: `Hall ${i}`, customer_id: 1, description: null }));
  await page.route(/\/server_rooms\/list_rooms\//, (route) => route.fulfill({ json: rooms }));
  const held: (() => Promise<void>)[] = [];
  let failing = true;
  await page.route(/\/data\/report\//, (route) => {
    const { searchParams, pathname } = new URL(route.request().url());
    if (pathname.endsWith("/time")) {
      return route.fulfill({
        json: { minutes: 43_200, minutes_reported: 43_200, minutes_outside_recommended: 1,
          minutes_outside_allowable: 0 },
      });
    }
    const room = Number(/report\/(\d+)/.exec(pathname)?.[1]);
    const [limit, first] = [Number(searchParams.get("limit")),
      searchParams.has("after") ? Number(searchParams.get("after")?.split("-")[2]) + 1 : 0];
    held.push(() => room === 4 && failing ? route.fulfill({ status: 500, json: { detail: "Internal server error" } })
      : route.fulfill({
      headers: first + limit < 200 ? { Link: `<${pathname}?after=n-${room}-${first + limit - 1}>; rel="next"` } : {},
      json: Array.from({ length: Math.min(limit, 200 - first) }, (_, i) => ({
        sensor_id: `n-${room}-${first + i}`, name: `Rack ${first + i + 1}`, minutes_reported: 43_200,
        minutes_outside_recommended: 1, minutes_outside_allowable: 0,
        min_temperature: 20, max_temperature: 28, calibration_due: null, calibration_overdue: false,
      })),
    }));
  });
  /** Answers so many requests more, of which two at most are open at a time. */
  let answered = 0;
  const answer = async (count: number) => {
    for (const until = answered + count; answered < until; answered++) {
      await expect.poll(() => held.length).toBeGreaterThan(answered);
      expect(held.length).toBeLessThanOrEqual(answered + 2);
      await held[answered]?.();
    }
  };
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Reports" }).click();
  await expect.poll(() => held.length).toBe(2);
  await answer(2);
  await expect(page.getByText("the report, 0 of 10 rooms, 100 sensors")).toBeVisible();
  // 200 sensors are four parts.
  await answer(9 * 4 + 1 - 2);
  await expect(page.getByText("Hall 3 is missing. Internal server error")).toBeVisible();
  await expect(page.getByText("9 of 10 rooms so far.", { exact: false })).toBeVisible();
  await expect(page.locator(".report details .numbers tbody tr")).toHaveCount(1800);
  await expect(page.getByRole("button", { name: "Print" })).toBeDisabled();
  failing = false;
  await page.getByRole("button", { name: "Try again" }).click();
  await answer(4);
  await expect(page.locator(".report details .numbers tbody tr")).toHaveCount(2000);
  await expect(page.getByRole("button", { name: "Print" })).toBeEnabled();
  expect(held).toHaveLength(answered);
});
