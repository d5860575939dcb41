// A verdict is on what the user saw, whatever the list became meanwhile.
import type { Page } from "@playwright/test";
import {
  addRoom, addSensor, ask, expect, expectAccessible, password, signInAgain, signUp, test, tokenOf, url,
} from "./user";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;
const predictions = "/api/v1/prediction-feedback";
const path = (id: number) => `${predictions}/${id}`;

interface Prediction { id: number; feedback: "ok" | "not_ok" | null }

/** Records predictions so many minutes old, with temperatures that tell them apart. */
async function record(token: string, node: string, minutes: number, temperature: number): Promise<number> {
  const { id } = await ask(token, "POST", predictions, {
    sensor_id: node, timestamp: new Date(Date.now() - minutes * 60_000).toISOString(), predicted_temp: temperature,
    actual_temp: temperature, anomaly_predicted: true,
  });
  return id;
}

/** A user who sees the newer of two predictions of their sensor. */
async function watching(page: Page) {
  await page.clock.install();
  await signUp(page);
  await addRoom(page, "Basement");
  const node = `judged-${Date.now()}`;
  await addSensor(page, node, "Rack 1");
  const token = await tokenOf(page);
  const older = await record(token, node, 20, 21);
  const seen = await record(token, node, 10, 22);
  await page.goto(url("/predictions"));
  await expect(shown(page)).toContainText("22.0 °C");
  const given = async (id: number) => (await ask<Prediction>(token, "GET", path(id))).feedback;
  return { node, token, older, seen, given };
}

const shown = (page: Page) => page.getByRole("group", { name: "Forecast against actual" });

/** The list is asked for again every minute. */
async function refetch(page: Page, left: string): Promise<void> {
  const listed = page.waitForResponse((response) => response.url().includes(`${predictions}?status=unvalidated`));
  await page.clock.fastForward("01:01");
  await (await listed).finished();
  await expect(page.getByText(left)).toBeVisible();
}

const ways = {
  "the button": (page: Page) => page.getByRole("button", { name: "Right" }).click(),
  "the key": (page: Page) => page.keyboard.press("o"),
};

for (const [name, sayRight] of Object.entries(ways)) {
  test(`a newer prediction takes no verdict of another, by ${name}`, async ({ page }) => {
    const { node, token, older, seen, given } = await watching(page);
    const newer = await record(token, node, 1, 23);
    await refetch(page, "3 left");
    await expect(shown(page)).toContainText("22.0 °C");
    await sayRight(page);
    await expect(shown(page)).toContainText("23.0 °C");
    expect([await given(older), await given(seen), await given(newer)]).toEqual([null, "ok", null]);
    await expect(page.getByText("1 judged right")).toBeVisible();
    await expect(page.getByText("of your verdicts wait"), "another model's do not count").toContainText("0 of 100");
  });

  test(`one that was judged elsewhere keeps its verdict, by ${name}`, async ({ page }) => {
    const { token, older, seen, given } = await watching(page);
    await ask(token, "PUT", path(seen), { feedback: "not_ok" });
    await refetch(page, "2 left");
    await expect(shown(page)).toContainText("22.0 °C");
    await sayRight(page);
    await expect(page.getByRole("button", { name: "Already judged wrong" })).toBeVisible();
    await expect(page.getByRole("alert").filter({ hasText: "judged" })).toContainText("yours was not stored");
    await expect(shown(page)).toContainText("22.0 °C");
    await page.keyboard.press("n");
    await expectAccessible(page);
    await page.screenshot({ path: `${pictures}judged-elsewhere.png` });
    expect([await given(older), await given(seen)]).toEqual([null, "not_ok"]);
    await page.keyboard.press("s");
    await expect(shown(page)).toContainText("21.0 °C");
    await expect(page.getByText("1 left")).toBeVisible();
    await expect(page.getByRole("button", { name: "Wrong" })).toBeVisible();
  });

  test(`one that is gone says so, by ${name}`, async ({ page }) => {
    const { node, token } = await watching(page);
    await ask(token, "DELETE", `/api/v1/sensors/delete_sensor/${node}`);
    await refetch(page, "1 left");
    await sayRight(page);
    await expect(page.getByRole("button", { name: "Gone" })).toBeVisible();
    await page.screenshot({ path: `${pictures}prediction-gone.png` });
    await page.getByRole("button", { name: "Next" }).click();
    await expect(page.getByText("Nothing to validate")).toBeVisible();
  });
}

test("keys wait until the verdict before is stored", async ({ page }) => {
  const { older, seen, given } = await watching(page);
  let go: () => void = () => undefined;
  const held = new Promise<void>((resolve) => { go = resolve; });
  await page.route(`**${path(seen)}`, async (route) => {
    if (route.request().method() === "PUT") await held;
    await route.continue();
  });
  const sent = page.waitForRequest((request) => request.method() === "PUT");
  await page.keyboard.press("o");
  await sent;
  await page.keyboard.press("n");
  await page.keyboard.press("s");
  await expect(shown(page)).toContainText("22.0 °C");
  go();
  await expect(shown(page)).toContainText("21.0 °C");
  expect([await given(older), await given(seen)]).toEqual([null, "ok"]);
});

test("a verdict that was not stored leaves its prediction in place", async ({ page }) => {
  const { seen, given } = await watching(page);
  await page.route(`**${path(seen)}`, (route) => route.abort("connectionreset"));
  await page.keyboard.press("o");
  await expect(page.getByRole("alert")).toContainText("The service cannot be reached.");
  await expect(shown(page)).toContainText("22.0 °C");
  await page.unroute(`**${path(seen)}`);
  await page.keyboard.press("n");
  await expect(shown(page)).toContainText("21.0 °C");
  expect(await given(seen)).toBe("not_ok");
});

test("another user who signs in over the page sees nothing of it", async ({ page, browser }) => {
  const other = await browser.newPage();
  const email = await signUp(other);
  await other.close();
  await watching(page);
  await page.clock.fastForward("31:00");
  const dialog = page.getByRole("dialog", { name: "Your session has ended" });
  await dialog.getByLabel("E-mail").fill(email);
  await page.clock.setSystemTime(new Date());
  await signInAgain(dialog, password);
  await expect(page.getByText("Nothing to validate")).toBeVisible();
  await expect(shown(page)).toHaveCount(0);
});
