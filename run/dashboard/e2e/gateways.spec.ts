// Gateways on the page.
import type { Page } from "@playwright/test";
import { addGateway, enrol } from "./gateway";
import { addRoom, expect, expectAccessible, signUp, test, url } from "./user";

async function openAndAdd(page: Page, name: string): Promise<string> {
  await page.goto(url("/gateways"));
  await page.getByRole("button", { name: "Add gateway" }).click();
  return addGateway(page, name);
}

test("a gateway is added, enrolled, seen and revoked", async ({ page }) => {
  await signUp(page);
  await page.goto(url("/gateways"));
  await expect(page.getByText("No gateway enrolled yet")).toBeVisible();
  const code = await openAndAdd(page, "Basement");
  const row = page.getByRole("row", { name: /Basement/ });
  await expect(row).toContainText("Waiting for its code");
  const report = await enrol(code);
  await report(["n1", "n2"]);
  await page.reload();
  await expect(row).toContainText("Enrolled");
  await expect(row).toContainText("1.2.3");
  await expect(row).toContainText("12 ms");
  await expect(page.getByText(code)).toHaveCount(0);
  await expectAccessible(page);
  await row.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke gateway" }).click();
  await expect(row).toContainText("Revoked");
  expect((await report([])).revoked).toBe(true);
});

test("discovered nodes are offered first, and an id can still be typed", async ({ page }) => {
  await signUp(page);
  const report = await enrol(await openAndAdd(page, "Attic"));
  const node = `found-${Date.now()}`;
  await report([node]);
  await report([`${node}-srv`], "srv-7");
  await page.goto(url());
  await addRoom(page, "Loft");
  await page.getByRole("button", { name: "Add sensor" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(`${node}-srv`).check();
  await expect(dialog.getByLabel("Name")).toHaveValue("srv-7");
  await dialog.getByLabel(new RegExp(`^${node}(?!-)`)).check();
  await expect(dialog.getByLabel("Node id")).toHaveValue(node);
  await expect(dialog.getByLabel("Name"), "the name of another node").toHaveValue("");
  await expectAccessible(page);
  await dialog.getByLabel("Name").fill("Door");
  await dialog.getByRole("button", { name: "Add sensor" }).click();
  await expect(page.getByRole("rowheader").getByRole("link", { name: "Door" })).toBeVisible();
  // It is a sensor now, and offered no more.
  await page.getByRole("button", { name: "Add sensor" }).click();
  await expect(dialog.getByRole("radio")).toHaveCount(1);
});
