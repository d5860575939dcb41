// The wall, and the floor plan of a room.
import { answer, hot, show } from "./answers";
import { addRoom, addSensor, ask, expect, expectAccessible, openMe, signUp, test, tokenOf, url } from "./user";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;

test("a wall shows every room, what is wrong on most of it, and keeps the screen awake", async ({ page }) => {
  await page.addInitScript(() => {
    const held = window as unknown as { locks: number };
    held.locks = 0;
    Object.defineProperty(navigator, "wakeLock", {
      value: { request: async () => { held.locks++; return { release: async () => { held.locks--; } }; } },
    });
  });
  await signUp(page);
  await show(page, answer(3, 24));
  await page.clock.install();
  await page.goto(url("/wall"));
  for (const hall of [1, 2, 3]) await expect(page.getByRole("heading", { name: `Hall ${hall}` })).toBeVisible();
  const locks = () => page.evaluate(() => (window as unknown as { locks: number }).locks);
  await expect.poll(locks).toBe(1);
  await show(
    page, answer(3, 24, { s50: { state: "critical", temperature: 35 } }, {
      incidents: [hot("s50", { room_id: 3, room_name: "Hall 3" })],
    }),
  );
  await page.reload();
  await page.setViewportSize({ width: 1920, height: 1080 });
  const trouble = page.locator(".walled > .rooms").first();
  await expect(trouble.getByRole("heading")).toHaveText(["Hall 3"]);
  const [large, all] = [await trouble.boundingBox(), await page.locator(".walled").boundingBox()];
  expect((large?.height ?? 0) / (all?.height ?? 1), "what is wrong has most of the screen").toBeGreaterThan(0.55);
  const sizes = await page.getByRole("heading", { level: 2 })
    .evaluateAll((found) => found.map((one) => parseFloat(getComputedStyle(one).fontSize)));
  expect(sizes[0], "the name of the room in trouble").toBeGreaterThanOrEqual(Math.max(...sizes));
  // It does not rotate away.
  await page.clock.fastForward("05:00");
  for (const hall of [3, 1, 2]) await expect(page.getByRole("heading", { name: `Hall ${hall}` })).toBeVisible();
  await expect(page.getByText(/Nobody has it\./)).toBeVisible();
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}wall.png` });
  await page.setViewportSize({ width: 1440, height: 900 });
  expect(await page.locator(".wall .cell b").evaluateAll((numbers) => numbers.flatMap((number) => {
    const [inner, outer] = [number, number.parentElement!].map((element) => element.getBoundingClientRect());
    return inner!.top < outer!.top || inner!.bottom > outer!.bottom || inner!.right > outer!.right
      ? [number.textContent] : [];
  })), "numbers that are cut").toEqual([]);
  await page.screenshot({ path: `${pictures}wall-1440.png` });
  await page.getByRole("button", { name: "Leave" }).click();
  await expect(page.getByRole("heading", { name: "Now", exact: true })).toBeAttached();
  await expect.poll(locks).toBe(0);
});

test("a wall has the session of a key that reads alone, and says when it was revoked", async ({ page, context }) => {
  await signUp(page);
  const token = await tokenOf(page);
  const key = (scope: string) =>
    ask<{ id: number; key: string }>(token, "POST", "/api/v1/api-keys", { name: "Wall", scope });
  const [read, watch] = [await key("read"), await key("watch")];
  await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Hall" });
  await openMe(page);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("button", { name: "Show on a wall" }).click();
  await page.getByLabel("API key").fill(watch.key);
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await expect(page.getByText("This key may change things.", { exact: false })).toBeVisible();
  await expectAccessible(page);
  await page.goto(url("/wall#key=%"));
  await expect(page.getByText("The service does not know this key.")).toBeVisible();
  await page.goto(url(`/wall#key=${read.key}`));
  await expect(page.getByText("No room has a sensor yet")).toBeVisible();
  await expect(page, "the key is not left in the address").toHaveURL(url("/wall"));
  await expect(page.getByRole("navigation")).toHaveCount(0);
  // It is no other tab's session.
  const second = await context.newPage();
  await second.goto(url());
  await expect(second.getByRole("heading", { name: "Sign in" })).toBeVisible();
  await second.close();
  await ask(token, "DELETE", `/api/v1/api-keys/${read.id}`);
  await expect(page.getByText("The API key has ended", { exact: false })).toBeVisible();
  await page.getByRole("button", { name: "Leave" }).click();
  await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
});

test("a service that is too busy to refuse a change calls no key too mighty, and is asked again", async ({ page }) => {
  let status = 503;
  await show(page, answer(1, 3));
  await page.route(/\/incidents\/0\/actions$/, (route) => route.fulfill({ status, json: {} }));
  await page.clock.install();
  await page.goto(url("/wall#key=cold_reads"));
  await expect(page.getByRole("alert")).toHaveText("The service answered 503.");
  status = 429;
  await page.clock.runFor(10_000);
  await expect(page.getByRole("alert")).toHaveText("The service answered 429.");
  status = 403;
  await page.clock.runFor(10_000);
  await expect(page.getByRole("heading", { name: "Hall 1" })).toBeVisible();
});

test("a wall's key in the address is shown, not who is signed in beside it", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  const { id: room } = await ask<{ id: number }>(token, "POST", "/api/v1/server_rooms/new_room", { name: "Hall" });
  await ask(token, "POST", "/api/v1/sensors/new_sensor",
    { sensor_id: `beside-${room}`, position: "R1", room_id: room });
  const { id: lobby } = await ask<{ id: number }>(token, "POST", "/api/v1/server_rooms/new_room", { name: "Lobby" });
  const { key } = await ask<{ key: string }>(token, "POST", "/api/v1/api-keys",
    { name: "Wall", scope: "read", room_ids: [lobby] });
  await page.goto(url("/wall"));
  await expect(page.getByRole("heading", { name: "Hall" })).toBeVisible();
  await page.goto(url(`/wall#key=${key}`));
  await expect(page.getByText("No room has a sensor yet")).toBeVisible();
  await expect(page).toHaveURL(url("/wall"));
  await page.getByRole("button", { name: "Leave" }).click();
  await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
});

test("a room is arranged on its floor by drag and by keyboard, and its map follows", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Basement");
  const id = `floor-${Date.now()}`;
  for (const n of [1, 2, 3]) await addSensor(page, `${id}-${n}`, `Rack ${n}`);
  const token = await tokenOf(page);
  await ask(token, "PUT", `/api/v1/sensors/update_sensor/${id}-2`, {
    name: "Rack 2", type: "ESP32-DHT22", room_id: Number(page.url().split("/").pop()), position: "R2/U40",
  });
  const position = async (shown: string) => {
    await page.getByRole("rowheader").getByRole("link", { name: "Rack 2" }).click();
    await expect(page.locator(".heading").first()).toContainText(`· ${shown}`);
    await page.goBack();
  };
  await position("R2/U40");
  await page.getByRole("button", { name: "More of this room" }).click();
  await page.getByRole("button", { name: "Arrange" }).click();
  const rack = (n: number) => page.getByRole("button", { name: `Rack ${n}`, exact: true });
  const tile = (name: string) => page.locator(`[data-tile="${name}"]`);
  await rack(1).dragTo(tile("C2"));
  await expect(tile("C2").getByText("Rack 1")).toBeVisible();
  await rack(2).focus();
  for (const key of ["ArrowDown", "ArrowRight", "ArrowRight", "ArrowDown"]) await page.keyboard.press(key);
  // From the first free tile, two to the right and one down: there they change places.
  await expect(tile("C2").getByText("Rack 2")).toBeVisible();
  await expect(tile("C1").getByText("Rack 1")).toBeVisible();
  await expect(rack(2)).toBeFocused();
  await page.keyboard.press("Alt+ArrowDown");
  await expect(tile("C2").getByText("Rack 2"), "a key of the browser").toBeVisible();
  await expect(page.getByRole("status").filter({ hasText: "Rack 2 on C2" })).toBeAttached();
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}arrange.png` });
  await page.getByRole("button", { name: "Set out the rest in rows" }).click();
  await expect(tile("A3").getByText("Rack 3")).toBeVisible();
  await page.getByRole("button", { name: "Save the arrangement" }).click();
  const map = page.getByRole("group", { name: "Sensors of Basement" });
  await expect(map.getByRole("link", { name: /^Rack 1/ })).toHaveCSS("grid-column-start", "3");
  await expect(map.getByRole("link", { name: /^Rack 2/ })).toHaveCSS("grid-row-start", "2");
  await expect(map.getByRole("link", { name: /^Rack 3/ })).toHaveCSS("grid-column-start", "1");
  const kept = await ask<{ position: string }>(token, "GET", `/api/v1/sensors/sensor/${id}-2`);
  expect(kept.position, "what else the position said stays").toBe("C2 R2/U40");
  await position("C2 R2/U40");
  await page.getByRole("link", { name: "Now", exact: true }).first().click();
  await expect(page.getByRole("link", { name: /^Rack 1,/ })).toHaveCSS("grid-column-start", "3");
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}overview-floor.png` });
});
