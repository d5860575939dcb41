import {
  addRoom, addSensor, dragAcrossChart, expect, sendReading, password, pressUntil, signInAgain, signInAs, signInDemo,
  signUp, signUpByForm, test, tokenOf, url,
} from "./user";

test("from sign-up to an incident that somebody has", async ({ page }) => {
  await signUpByForm(page);
  await expect(page.getByText("No server room yet")).toBeVisible();
  await addRoom(page, "Basement");
  const node = `node-${Date.now()}`;
  await addSensor(page, node, "Rack 4, inlet");
  await expect(page.getByText(`Check that the node sends the id ${node}`)).toBeVisible();

  await sendReading(node, 55.2, 40);
  await page.getByRole("link", { name: "Now", exact: true }).first().click();
  await expect(page.getByText(/Basement is too hot: 55\.2 °C at Rack 4, inlet, limit 50\.0 °C/)).toBeVisible();
  await expect(page).toHaveTitle("(1) Now · Coldaisle");
  await expect(page.locator("link[rel=icon]")).toHaveAttribute("href", "/icon-open.svg");

  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: /Incidents/ }).click();
  const row = page.getByRole("row", { name: /Rack 4, inlet/ });
  await expect(row).toContainText("Temperature above 50.0 °C");
  await expect(row).toContainText("55.2 °C");
  await expect(row).toContainText("Nobody has it");
  await row.getByRole("button", { name: "I have it" }).click();
  await row.getByRole("button", { name: "Comment" }).click();
  await page.getByRole("dialog").getByLabel("Comment").fill("On my way");
  await page.getByRole("dialog").getByRole("button", { name: "Comment" }).click();
  await expect(row).toContainText("On my way");
  await expect(page.getByText("1 incident lasts: nobody has 0, 1 taken, 0 in maintenance.")).toBeVisible();
  await sendReading(node, 22, 40);
  // It may come back within ten minutes, and is the same then.
  const cleared = page.getByRole("row", { name: /Basement was too hot/ });
  await expect(cleared).toContainText("Cleared");
  await page.getByRole("button", { name: "History" }).click();
  await expect(cleared).toContainText("On my way");
});

test("predictions are judged by keys, and a run is started by hand", async ({ page }) => {
  await signInDemo(page);
  await page.goto(url("/predictions"));
  await expect(page.getByText("38 of 100", { exact: false })).toBeVisible();
  const left = page.getByText(/\d+ left/);
  await expect(left).toBeVisible();
  const count = Number(/\d+/.exec(await left.innerText())?.[0]);
  await page.keyboard.press("o");
  await expect(page.getByText("39 of 100", { exact: false })).toBeVisible();
  await page.keyboard.press("n");
  await expect(page.getByText("40 of 100", { exact: false })).toBeVisible();
  await page.keyboard.press("s");
  // New predictions may have come meanwhile.
  await expect.poll(async () => Number(/\d+/.exec(await left.innerText())?.[0])).toBeLessThan(count);
  await expect(page.getByText("No run yet.", { exact: false })).toBeVisible();
  await page.getByRole("button", { name: "Retrain now" }).click();
  await expect(page.getByRole("row", { name: /completed.*hand/ })).toHaveCount(1);
});

test("a sensor is renamed, moved and deleted, and its readings are kept", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "North");
  const node = `moving-${Date.now()}`;
  await addSensor(page, node, "Old name");
  await sendReading(node, 21, 41);
  await page.goto(url());
  await addRoom(page, "South");
  await page.goto(url(`/sensors/${node}`));
  await page.getByRole("button", { name: "Rename or move" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("New name");
  await dialog.getByLabel("Room").selectOption("South");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("heading", { name: "New name" })).toBeVisible();
  await expect(page.getByRole("link", { name: "South" })).toBeVisible();
  await page.getByRole("button", { name: "Delete" }).click();
  await expect(page.getByText("Readings already stored are kept.", { exact: false })).toBeVisible();
  await page.getByRole("button", { name: "Delete sensor" }).click();
  await expect(page.getByRole("heading", { name: "South", level: 1 })).toBeVisible();
  await expect(page.getByText("No sensor in this room yet")).toBeVisible();

  // The same id again: what it had measured is still there.
  await addSensor(page, node, "Back again");
  await page.getByRole("rowheader").getByRole("link", { name: "Back again" }).click();
  await expect(page.getByText("lowest 21.0")).toContainText("highest 21.0 °C");
  await page.goBack();
  await page.getByRole("button", { name: "More of this room" }).click();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("button", { name: "Delete room" }).click();
  await expect(page.getByRole("heading", { name: "Rooms", exact: true })).toBeVisible();
  await expect(page.getByRole("link", { name: "South" })).toHaveCount(0);
});

test("a session that ends asks to sign in over the page, and loses nothing", async ({ page }) => {
  await page.clock.install();
  await signUp(page);
  await page.goto(url("/maintenance"));
  await page.getByRole("button", { name: "Add window" }).click();
  await page.getByLabel("What for").fill("Filters are changed");
  await page.clock.fastForward("31:00");
  const dialog = page.getByRole("dialog", { name: "Your session has ended" });
  await expect(dialog).toBeVisible();
  await page.clock.setSystemTime(new Date());
  await signInAgain(dialog, password);
  await expect(page.getByLabel("What for")).toHaveValue("Filters are changed");
  await page.getByRole("dialog").getByRole("button", { name: "Add window" }).click();
  await expect(page.getByText("Filters are changed").first()).toBeVisible();
});

test("a token that another device made invalid asks too, and the new password works", async ({ page, browser }) => {
  const email = await signUp(page);
  const other = await browser.newPage();
  await signInAs(other, email, password);
  await other.goto(url("/account"));
  await other.getByLabel("New password").fill("Another-one-2");
  await pressUntil(other.getByRole("button", { name: "Change password" }), (patience) =>
    expect(other.getByText("Changed.")).toBeVisible(patience));
  await other.close();
  await page.goto(url("/account"));
  const dialog = page.getByRole("dialog", { name: "Your session has ended" });
  await signInAgain(dialog, "Another-one-2");
  await expect(page.getByLabel("E-mail")).toHaveValue(email);
});

test("two customers see nothing of each other", async ({ page, browser }) => {
  await signUp(page);
  await addRoom(page, "Secret room");
  const node = `secret-${Date.now()}`;
  await addSensor(page, node, "Secret sensor");
  const room = page.url();
  const token = await tokenOf(page);
  const stranger = await browser.newPage();
  await signUp(stranger);
  expect(await tokenOf(stranger)).not.toBe(token);
  await expect(stranger.getByText("Secret room")).toHaveCount(0);
  await stranger.goto(room);
  await expect(stranger.getByRole("heading", { name: "Room not found", level: 1 })).toBeVisible();
  await stranger.goto(url(`/sensors/${node}`));
  await expect(stranger.getByRole("heading", { name: "Sensor not found", level: 1 })).toBeVisible();
  await stranger.close();
});

test("a hidden tab asks for nothing but the overview", async ({ page }) => {
  await signInDemo(page);
  await page.clock.install();
  await page.goto(url());
  await page.getByRole("link", { name: /^Rack 1,/ }).first().click();
  await expect(page.getByRole("button", { name: "Download CSV" })).toBeVisible();
  await expect(page.locator("canvas")).toHaveCount(3);
  let asked: string[] = [];
  page.on("request", (request) => {
    if (!request.url().endsWith("/api/v1/overview")) asked.push(request.url());
  });
  await page.clock.runFor(320_000);
  await expect.poll(() => asked.length, "requests while visible").toBeGreaterThan(0);
  await page.evaluate(() => {
    Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
    Object.defineProperty(document, "hidden", { value: true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  // What was asked while it was visible may lead to more.
  let before: number;
  do {
    before = asked.length;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  } while (asked.length > before);
  asked = [];
  await page.clock.runFor(320_000);
  expect(asked, "requests while hidden").toEqual([]);
});

test("readings are saved as CSV", async ({ page }) => {
  await signInDemo(page);
  await page.getByRole("link", { name: /^Rack 1,/ }).first().click();
  const download = page.waitForEvent("download");
  let asked = 0;
  let release = () => {};
  const pressed = new Promise<void>((resolve) => { release = resolve; });
  await page.route(/format=csv/, async (route) => {
    asked++;
    await pressed; // after the answer a second press is another download
    await route.continue();
  });
  await page.getByRole("button", { name: "Download CSV" }).dblclick();
  release();
  const stream = await (await download).createReadStream();
  let text = "";
  for await (const chunk of stream) text += String(chunk);
  expect(text).toMatch(/^node_id,timestamp,temperature,humidity\r?\n/);
  expect(text.split("\n").length).toBeGreaterThan(1000);
  expect(asked).toBe(1);
});

test("a range is chosen by dragging across a chart", async ({ page }) => {
  await signInDemo(page);
  await page.getByRole("link", { name: /^Rack 1,/ }).first().click();
  await expect(page.locator(".u-over").first()).toBeVisible();
  const asked = page.waitForRequest((request) =>
    request.url().includes("/historical/") && request.url().includes("max_points=720"));
  await dragAcrossChart(page);
  const query = new URL((await asked).url()).searchParams;
  const hours = (Date.parse(query.get("end_time") ?? "") - Date.parse(query.get("start_time") ?? "")) / 3_600_000;
  expect(hours).toBeGreaterThan(5.5);
  expect(hours).toBeLessThan(6.5);
  await expect(page.getByRole("button", { name: "24h" })).toHaveAttribute("aria-pressed", "false");
});
