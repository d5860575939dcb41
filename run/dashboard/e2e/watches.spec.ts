// The programs on site that call people: known by their heartbeats, and told of on
// the overview when nobody would be woken.
import { ask, expect, expectAccessible, signUp, test, tokenOf, url } from "./user";
import { query } from "./seed";

test("nobody would be woken: the overview says so, and the page of watches removes one", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  await page.goto(url("/watches"));
  await expect(page.getByRole("heading", { name: "Nobody is woken yet" })).toBeVisible();
  await expectAccessible(page);
  const { key } = await ask<{ key: string }>(token, "POST", "/api/v1/api-keys", { name: "Site", scope: "watch" });
  const site = `Zurich ${Date.now()}`;
  await ask(key, "POST", "/api/v1/watches/heartbeat", { name: site, last_poll_age_s: 1, queue_age_s: 0 });
  await page.reload();
  await expect(page.getByRole("row", { name: new RegExp(`${site}.*Well`) })).toBeVisible();
  await query("UPDATE watches SET heartbeat_at = heartbeat_at - interval '2 days' WHERE name = $1", [site]);
  await page.goto(url("/"));
  const sentence = `Nobody would be woken: the watch of ${site} has been silent for 2 d`;
  await expect(page.getByRole("alert").filter({ hasText: sentence })).toBeVisible();
  await page.screenshot({ path: "test-results/watches-overview.png" });
  await page.goto(url("/watches"));
  await expect(page.getByText(sentence)).toBeVisible();
  await expectAccessible(page);
  await page.screenshot({ path: "test-results/watches.png" });
  await page.getByRole("button", { name: `Remove ${site}` }).click();
  await page.getByRole("button", { name: "Remove watch" }).click();
  await expect(page.getByRole("heading", { name: "Nobody is woken yet" })).toBeVisible();
});
