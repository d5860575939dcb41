// From an empty account to limits, and the page as an installed program.
import { addGateway, enrol } from "./gateway";
import { query } from "./seed";
import { ask, expect, expectAccessible, signUp, test, tokenOf, url } from "./user";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;

test("an empty account is led to rooms, a gateway, sensors and limits", async ({ page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await signUp(page);
  await page.getByRole("link", { name: "Or follow the checklist" }).click();
  await expect(page.getByRole("heading", { name: "Setup", exact: true })).toBeVisible();
  await page.getByRole("button", { name: "Add room" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("Hall");
  await page.getByRole("dialog").getByRole("button", { name: "Add room" }).click();
  const step = (title: string) => page.getByRole("listitem")
    .filter({ has: page.getByRole("heading", { name: title }) });
  await expect(step("Add rooms and their sensors")).toContainText("Hall: 0 sensors so far.");
  // The way goes on after the first room, from the overview and from the settings.
  await page.goto(url());
  await page.getByRole("link", { name: "Setup: 0 of 4 done" }).click();
  await expect(page.getByText("0 of 4 done.", { exact: false })).toBeVisible();
  await expect(page.getByRole("navigation", { name: "Setup" }).getByRole("link", { name: "Checklist" })).toBeVisible();

  await page.getByRole("button", { name: "Add gateway" }).click();
  const code = await addGateway(page, "Basement");
  await expect(step("Enrol a gateway")).toContainText("run the command on its machine");
  // The command stays until it is used.
  await page.reload();
  await expect(step("Enrol a gateway").locator("pre")).toContainText(code);
  const report = await enrol(code);
  const nodes = ["a", "b"].map((name) => `setup-${name}-${Date.now()}`);
  await report(nodes);
  await page.reload();
  await expect(step("Enrol a gateway")).toContainText("Done");
  await expect(page.getByText(code)).toHaveCount(0);
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}setup.png`, fullPage: true });
  // One click each, and the focus goes on to the next.
  const place = (node: string | undefined) => page.getByRole("button", { name: `Put ${node} into Hall` });
  await place(nodes[0]).click();
  await expect(place(nodes[0])).toHaveCount(0);
  await expect(place(nodes[1])).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(step("Add rooms and their sensors")).toContainText("2 sensors so far");
  // Those of one rack together, by the name that their source suggests.
  const rack = ["c7-1", "c7-2", "d1"].map((name) => `${name}-${Date.now()}`);
  await report(rack, "Inlet Temp");
  await page.reload();
  await page.getByLabel("Only nodes with").fill("C7-");
  const placed = page.waitForRequest("**/new_sensors");
  await page.getByRole("button", { name: "Put 2 nodes into Hall" }).click();
  const sensor = expect.objectContaining({ name: "Inlet Temp", type: "Telegraf" }) as unknown;
  expect((await placed).postDataJSON()).toMatchObject({ sensors: [sensor, sensor] });
  await expect(step("Add rooms and their sensors")).toContainText("4 sensors so far");
  await expect(place(rack[2])).toBeVisible();

  // A limit by what the room does, with one press; 50 °C tells nobody.
  await query(`
    INSERT INTO node_slots (channel, node_id, slot, starts, last_at, last_temperature, min_temperature, max_temperature)
    SELECT 0, $1, extract(epoch FROM at)::bigint / 600 % 144, at, at, 28, 28, 30.4
    FROM date_bin('10 minutes', now(), 'epoch') AS at`, [nodes[0]]);
  await page.reload();
  await expect(step("Choose limits")).not.toContainText("Done");
  await expect(step("Choose limits")).toContainText("Hall had at most 30.4 °C in the last day.");
  await expectAccessible(page);
  const taken = page.waitForRequest((request) => request.method() === "POST" && request.url().endsWith("/rules"));
  await page.getByRole("button", { name: "Alarm above 36.0 °C in Hall" }).click();
  expect((await taken).postDataJSON()).toMatchObject({ quantity: "temperature", limit: 36, severity: "critical" });
  await expect(step("Choose limits")).toContainText("Done");
  await expect(step("Choose limits")).not.toContainText("you are told only above");
  await expect(page.getByRole("button", { name: "Alarm above" })).toHaveCount(0);

  await page.getByRole("button", { name: "Preview incidents" }).click();
  await expect(page.getByText("No incident in the last 7 days.")).toBeVisible();
  await page.getByRole("button", { name: "Add these rules" }).click();
  await expect(step("Choose limits")).toContainText("Done");
  await page.getByRole("link", { name: "Go to Now" }).click();
  await expect(page.getByRole("link", { name: "Hall" })).toBeVisible();
  await page.getByRole("link", { name: "Setup: 3 of 4 done" }).click();
  await expect(step("Have somebody woken")).not.toContainText("Done");
  const { key } = await ask<{ key: string }>(await tokenOf(page), "POST", "/api/v1/api-keys",
    { name: "Watch", scope: "watch" });
  await ask(key, "POST", "/api/v1/watches/heartbeat", { name: "Hall", last_poll_age_s: 1, queue_age_s: 0 });
  await page.reload();
  await expect(step("Have somebody woken")).toContainText("Done");
  await page.getByRole("link", { name: "Go to Now" }).click();
  await expect(page.getByRole("link", { name: "Hall" })).toBeVisible();
  await expect(page.getByRole("link", { name: /^Setup: / })).toHaveCount(0);
});

test("the page can be installed", async ({ page }) => {
  await page.goto(url());
  const link = await page.locator("link[rel=manifest]").getAttribute("href");
  const manifest = (await (await page.request.get(url(link ?? ""))).json()) as {
    name: string; start_url: string; display: string; icons: { src: string; type: string; sizes: string }[];
  };
  expect(manifest).toMatchObject({ name: "Coldaisle", start_url: "/", display: "standalone" });
  for (const { src, type, sizes } of manifest.icons) {
    const answer = await page.request.get(url(src));
    expect(answer.headers()["content-type"], src).toContain(type);
    if (type !== "image/png") continue;
    const bytes = await answer.body();
    expect(`${bytes.readUInt32BE(16)}x${bytes.readUInt32BE(20)}`).toBe(sizes);
  }
  // What the browser itself finds wrong with it.
  const browser = await page.context().newCDPSession(page);
  const { errors } = await browser.send("Page.getAppManifest");
  expect(errors).toEqual([]);
});
