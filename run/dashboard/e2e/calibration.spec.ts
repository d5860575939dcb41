// The calibration of a sensor: a correction is added, shown and withdrawn; an overdue one is shown.
import { answer, show } from "./answers";
import { query } from "./seed";
import { addRoom, addSensor, expect, expectAccessible, signUp, test, url } from "./user";

test("a correction is added and withdrawn, and an overdue certificate is shown", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Calibrated hall");
  const id = `cal-${Date.now()}`;
  await addSensor(page, id, "Rack 7 top");
  await page.goto(url(`/sensors/${id}`));
  await page.getByText("Calibration", { exact: false }).first().click();
  await page.getByRole("button", { name: "Add correction" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Temperature offset in °C").fill("-0.35");
  await dialog.getByLabel("Humidity offset in %").fill("1.5");
  await dialog.getByLabel("Certificate").fill("DAkkS 2026-1187");
  await dialog.getByLabel("Next calibration due").fill("2031-03-01");
  await expectAccessible(page);
  if (process.env.SHOT) await page.screenshot({ path: `${process.env.SHOT}/add.png`, fullPage: true });
  await dialog.getByRole("button", { name: "Add correction" }).click();
  const row = page.getByRole("row", { name: /−0\.35 °C \+1\.50 % DAkkS 2026-1187 2031-03-01 .* Planned/ });
  await expect(row).toBeVisible();
  await expectAccessible(page);
  await row.getByRole("button", { name: "Withdraw" }).click();
  await dialog.getByRole("button", { name: "Withdraw" }).click();
  await expect(page.getByRole("row", { name: /−0\.35 °C .*Withdrawn by .* Withdrawn/ })).toBeVisible();

  await query(
    `INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, due_date, added_by,
      added_at)
     SELECT customer_id, node_id, now() - interval '1 day', 0.2, 0, '2021-01-01', 'Ana',
     now() - interval '2 days' FROM sensors WHERE node_id = $1`,
     [id],
  );
  await page.reload();
  await expect(page.getByText("overdue since 2021-01-01")).toBeVisible();
  await expect(page.getByRole("row", { name: /\+0\.20 °C .*Overdue.* In force/ })).toBeVisible();
  await expectAccessible(page);
  if (process.env.SHOT) await page.screenshot({ path: `${process.env.SHOT}/shown.png`, fullPage: true });
  await page.goto(url("/audit"));
  await expect(page.getByText(`withdrew the correction of sensor ${id}`).first()).toBeVisible();
});

test("in the hour that comes twice a correction begins in the one that its form says", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Attic");
  const id = `twice-${Date.now()}`;
  await addSensor(page, id, "Rack 1");
  // The overview's time is the page's: no other answer sets it back.
  await show(page, answer(1, 1, {}, { time: "2026-10-25T00:10:00Z" }));
  await page.addInitScript(() => {
    const { get } = Headers.prototype;
    Headers.prototype.get = function (name) {
      return name === "Date" ? null : get.call(this, name);
    };
  });
  await page.goto(url(`/sensors/${id}`));
  await expect(page.locator(".live")).toContainText("live");
  await page.getByText("Calibration", { exact: false }).first().click();
  await page.getByRole("button", { name: "Add correction" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByLabel("From")).toHaveAccessibleDescription("Clocks change then. This is 02:25 CEST.");
  const sent = page.waitForRequest((request) => request.method() === "POST" && request.url().endsWith("/corrections"));
  await dialog.getByRole("button", { name: "Add correction" }).click();
  expect((await sent).postDataJSON()).toMatchObject({ from: expect.stringMatching(/^2026-10-25T00:2/) });
});
