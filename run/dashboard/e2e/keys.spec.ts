// API keys and the audit log on the page: the whole life of a key, whose program is
// made by hand.
import { readFile } from "node:fs/promises";
import { addRoom, expect, expectAccessible, signUp, test, url } from "./user";

const ask = (key: string, path: string, method = "GET") =>
  fetch(url(path), { method, headers: { Authorization: `Bearer ${key}` } });

test("a key is created, copied, used, seen in the log and revoked", async ({ page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await signUp(page);
  await addRoom(page, "Attic");
  await page.goto(url());
  await addRoom(page, "Cellar");
  await page.goto(url("/account"));
  await page.getByRole("link", { name: "API keys" }).click();
  await expect(page.getByText("No API key yet")).toBeVisible();

  await page.getByRole("button", { name: "Create key" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("Renamer");
  await dialog.getByLabel("It may").selectOption("Read and change");
  await dialog.getByLabel("Expires").selectOption("In 90 days");
  await dialog.getByLabel("Attic").check();
  await expectAccessible(page);
  await dialog.getByRole("button", { name: "Create key" }).click();
  const key = await dialog.locator("pre").innerText();
  expect(key).toMatch(/^cold_[0-9A-Za-z]{49}$/);
  await page.keyboard.press("Escape");
  await expect(dialog).toBeVisible();
  await page.goBack();
  const asked = page.waitForEvent("dialog");
  await page.evaluate(() => { setTimeout(() => location.reload()); });
  await (await asked).dismiss();
  await dialog.getByRole("button", { name: "Copy" }).click();
  await expect(dialog.getByText("Copied.")).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(key);
  await expectAccessible(page);
  await dialog.getByRole("button", { name: "Done" }).click();

  const row = page.getByRole("row", { name: /Renamer/ });
  for (const text of [key.slice(0, 9), "Read and change", "Attic"]) await expect(row).toContainText(text);
  await expect(row).not.toContainText("Cellar");
  expect(await page.content()).not.toContain(key);

  // What a program does by it.
  const seen = (await (await ask(key, "/api/v1/overview")).json()) as { rooms: { id: number; name: string }[] };
  expect(seen.rooms.map(({ name }) => name)).toEqual(["Attic"]);
  expect((await ask(key, "/api/v1/api-keys")).status).toBe(403);
  const attic = seen.rooms[0]?.id ?? 0;
  const renamed = await fetch(url(`/api/v1/server_rooms/update_room/${attic}`), {
    method: "PUT", headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: JSON.stringify({ name: "Loft" }),
  });
  expect(renamed.status).toBe(200);
  await expect(async () => {
    await page.reload();
    expect(await row.getByRole("cell").nth(5).innerText()).not.toBe("Never");
  }).toPass();

  // The log says who it was; a filter and the CSV say the same.
  await page.getByRole("main").getByRole("link", { name: "audit log", exact: true }).click();
  await expect(page.getByRole("row", { name: /created API key Renamer/ })).toBeVisible();
  await page.getByLabel("By", { exact: true }).selectOption("API keys");
  await page.getByLabel("What").fill("updateRoom");
  await page.getByRole("button", { name: "Filter" }).click();
  await expect(page.getByRole("row")).toHaveCount(2);
  const entry = page.getByRole("row", { name: /Renamer changed room Loft/ });
  await entry.getByText("Show").click();
  await expect(entry).toContainText("Loft");
  await expectAccessible(page);
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download CSV" }).click();
  const lines = (await readFile(await (await download).path(), "utf8")).trim().split("\n");
  expect(lines).toHaveLength(2);
  expect(lines[1]).toMatch(/,key,key:\d+,Renamer,updateRoom,room:\d+,/);

  await page.goto(url("/keys"));
  await row.getByRole("button", { name: "Revoke" }).click();
  await expectAccessible(page);
  await page.getByRole("dialog").getByRole("button", { name: "Revoke key" }).click();
  await expect(row).toHaveCount(0);
  await expect.poll(async () => (await ask(key, "/api/v1/overview")).status).toBe(401);
});
