// How a user wants to see and use the page.
import { addRoom, addSensor, expect, expectAccessible, sendReading, signUp, test, url } from "./user";

const toSettings = async (page: Parameters<typeof signUp>[0]) => {
  await page.goto(url("/settings"));
  await expect(page.getByRole("heading", { name: "Display" })).toBeVisible();
};

test("in degrees Fahrenheit and the site's time zone, everywhere", async ({ page, context }) => {
  await signUp(page);
  await addRoom(page, "Attic");
  const node = `fahrenheit-${Date.now()}`;
  await addSensor(page, node, "Door");
  await sendReading(node, 51, 40);
  const other = await context.newPage();
  await other.goto(url(`/sensors/${node}`));
  const row = other.getByRole("region", { name: "Excursions" }).getByRole("row", { name: /^Temperature above/ });
  await expect(row).toContainText("Temperature above 50.0 °C");
  await toSettings(page);
  await expectAccessible(page);
  await page.getByLabel("Temperatures").selectOption("°F");
  await page.getByLabel("Time zone of all times").selectOption("Asia/Tokyo");
  await expect(page.getByText("the recommended range ends at 80.6 °F", { exact: false })).toBeVisible();
  // Another tab follows.
  await expect(row).toContainText("Temperature above 122.0 °F");
  await expect(row).toContainText("123.8 °F");
  const time = row.locator("time").first();
  const tokyo = new Intl.DateTimeFormat("en-GB", { timeZone: "Asia/Tokyo", hour: "2-digit", minute: "2-digit" })
    .format(Date.parse(await time.getAttribute("datetime") ?? ""));
  await expect(time).toContainText(tokyo);
  await other.close();
  // A limit is typed as it is shown.
  await page.goto(url("/rules"));
  await page.getByRole("button", { name: "Add rule" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByLabel("Limit, °F")).toHaveValue("80.6");
  await dialog.getByLabel("Limit, °F").fill("86");
  // As keyboards of other countries have it: Chromium alone would drop the comma, and other digits.
  const margin = dialog.getByLabel("Over when back by, °F");
  for (const typed of ["0,9", "٠٫٩", "۰٫۹"]) {
    await margin.fill("");
    await margin.pressSequentially(typed);
    await expect(margin).toHaveValue("0.9");
  }
  const sent = page.waitForRequest((request) => request.method() === "POST" && request.url().endsWith("/rules"));
  await dialog.getByRole("button", { name: "Add rule" }).click();
  expect((await sent).postDataJSON()).toMatchObject({ limit: 30, clear_margin: 0.5 });
  await expect(page.getByRole("row", { name: /Temperature above 86.0 °F/ })).toBeVisible();
});

test("letters alone do nothing when they are switched off", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Attic");
  const node = `silent-keys-${Date.now()}`;
  await addSensor(page, node, "Door");
  await sendReading(node, 51, 40);
  await toSettings(page);
  await page.getByLabel("Single-key shortcuts").uncheck();
  await page.goto(url("/incidents"));
  const row = page.getByRole("link", { name: "Attic is too hot" });
  await expect(row).toBeVisible();
  await row.focus();
  await page.keyboard.press("a");
  await expect(row).toBeFocused();
  await expect(page.getByText("nobody has 1, 0 taken", { exact: false })).toBeVisible();
  await page.goto(url("/settings"));
  await page.getByLabel("Single-key shortcuts").check();
  await page.goto(url("/incidents"));
  await row.focus();
  await page.keyboard.press("a");
  await expect(page.getByText("nobody has 0, 1 taken", { exact: false })).toBeVisible();
});

test("days and times that are typed are those of the chosen zone, not of the browser", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Attic");
  const node = `zone-${Date.now()}`;
  await addSensor(page, node, "Door");
  await sendReading(node, 21, 40);
  await toSettings(page);
  await page.getByLabel("Time zone of all times").selectOption("Asia/Tokyo");
  const asked = (path: string) => page.waitForRequest((request) => {
    const { pathname, search } = new URL(request.url());
    return pathname.endsWith(path) && (request.method() === "POST" || search.includes("start_time"));
  });
  const listed = asked("/incidents");
  await page.goto(url("/incidents?state=all&from=2026-03-28&to=2026-03-29"));
  const range = new URL((await listed).url()).searchParams;
  expect([range.get("start_time"), range.get("end_time")])
    .toEqual(["2026-03-27T15:00:00.000Z", "2026-03-29T15:00:00.000Z"]);
  // An address that was cut off has no day.
  await page.goto(url("/incidents?state=all&from=2026-0&to=2026-03-29"));
  await expect(page.getByText("0 incidents, newest first.")).toBeVisible();

  await page.goto(url("/audit"));
  await page.getByLabel("From").fill("2026-03-28T10:00");
  const before = page.getByLabel("Before");
  await before.fill("2026-03-28T10:00");
  await page.getByRole("button", { name: "Filter" }).click();
  await expect(before).toHaveAccessibleDescription("Choose a time after From.");
  await expect(before).toBeFocused();
  await before.fill("");
  const logged = asked("/audit");
  await page.getByRole("button", { name: "Filter" }).click();
  expect(new URL((await logged).url()).searchParams.get("start_time")).toBe("2026-03-28T01:00:00.000Z");

  await page.goto(url(`/sensors/${node}`));
  await page.getByText("Calibration", { exact: false }).first().click();
  await page.getByRole("button", { name: "Add correction" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("From").fill("2030-03-28T10:00");
  const corrected = asked("/corrections");
  await dialog.getByRole("button", { name: "Add correction" }).click();
  expect((await corrected).postDataJSON()).toMatchObject({ from: "2030-03-28T01:00:00.000Z" });
});
