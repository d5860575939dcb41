import { answer, show } from "./answers";
import { ask, expect, signUp, test, tokenOf, url } from "./user";

test("rooms and sensors are listed by the numbers in their names", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  const mixed = [10, 2, 1, 21, 3];
  const inOrder = [1, 2, 3, 10, 21];
  const rooms: number[] = [];
  for (const number of mixed) {
    rooms.push((await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: `Row ${number}` })).id);
  }
  for (const number of mixed) {
    await ask(token, "POST", "/api/v1/sensors/new_sensor", {
      id: `names-${rooms[0]}-${number}`, name: `Rack ${number}, inlet`, type: "ESP32-DHT22", room_id: rooms[0],
    });
  }
  const racks = inOrder.map((number) => `Rack ${number}, inlet`);
  const rows = inOrder.map((number) => `Row ${number}`);

  await page.reload();
  await expect(page.locator(".cell span")).toHaveText(racks);
  // A room with sensors that wait for their first reading is worse than an empty one.
  await expect(page.locator("h2 a")).toHaveText(["Row 10", "Row 1", "Row 2", "Row 3", "Row 21"]);
  await page.goto(url(`/rooms/${rooms[0]}`));
  await expect(page.getByRole("rowheader")).toHaveText(racks);
  await page.getByRole("rowheader").getByRole("link", { name: "Rack 2, inlet" }).click();
  await page.getByRole("button", { name: "Rename or move" }).click();
  await expect(page.getByRole("dialog").getByRole("option")).toHaveText(rows);
});

test("a room says its highest first, and a long name leaves the last reading in sight", async ({ page }) => {
  await signUp(page);
  const name = "Rack 4, top right behind the cold aisle containment, inlet at height unit 42";
  await show(page, answer(1, 2, { s0: { name } }));
  await page.goto(url("/rooms/1"));
  await expect(page.getByText("highest 25.9 °C, ▲ 0.4 °C in 15 min, limit 27.0 °C")).toBeVisible();
  const table = page.getByRole("group", { name: "Sensors", exact: true });
  await expect(table.getByRole("link", { name })).toBeVisible();
  expect(await table.evaluate(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)).toBe(0);
  const arrows = [];
  for (let press = 0; press < 2; press++) {
    const column = table.getByRole("button", { name: "Temperature" });
    await column.click();
    await expect(table.locator("[aria-sort]")).toHaveAttribute("aria-sort", press === 0 ? "descending" : "ascending");
    arrows.push(await column.evaluate((button) => getComputedStyle(button, "::after").content));
  }
  expect(new Set(arrows).size, "an arrow of its own for each order").toBe(2);
});
