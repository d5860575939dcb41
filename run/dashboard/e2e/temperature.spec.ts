// A room whose sensors measure temperature alone: nothing of the page waits for a humidity.
import { addRoom, addSensor, expect, expectAccessible, signUp, test, url } from "./user";
import { query, seedReadings } from "./seed";

const pictures = new URL("../test-results/screenshots/", import.meta.url).pathname;

test("a room without humidity is whole", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Vault");
  const nodes = ["a", "b"].map((name) => `bmc-${name}-${Date.now()}`);
  for (const [i, node] of nodes.entries()) await addSensor(page, node, `Inlet ${i + 1}`);
  await seedReadings(nodes, 86_400, 30, 120);
  await query("UPDATE sensor_data.readings SET humidity = NULL WHERE node_id = ANY($1)", [nodes]);
  await query(`
    UPDATE node_state s SET message_id = 'newest', timestamp = now(), temperature = 24.3, temperature_at = now(),
    usual_interval_s = 30
    WHERE channel = 0 AND node_id = ANY($1)`, [nodes]);
  await page.goto(url("/"));
  await expect(page.locator(".cell", { hasText: "24.3" })).toHaveCount(2);
  await expect(page.locator("body")).not.toContainText(/NaN|null|undefined/);
  await page.screenshot({ path: `${pictures}temperature-overview.png`, fullPage: true });
  await page.goto(url(`/sensors/${nodes[0]}`));
  await expect(page.locator(".chart canvas")).toHaveCount(1);
  const now = page.getByRole("region", { name: "Now" });
  await expect(now).toContainText("24.3");
  await expect(now.getByText("Humidity")).toHaveCount(0);
  await expect(now.getByText("Dew point")).toHaveCount(0);
  await expect(page.getByText(/^\s*lowest \d+\.\d · mean \d+\.\d · highest/)).toHaveCount(1);
  await expect(page.locator("body")).not.toContainText(/NaN|null|undefined/);
  const charts = await page.locator(".charts").boundingBox();
  const last = await page.locator(".charts > :last-child").boundingBox();
  const bottom = (box: typeof charts) => (box?.y ?? 0) + (box?.height ?? 0);
  expect(bottom(charts) - bottom(last), "no space is kept for charts that never come").toBeLessThan(40);
  await expectAccessible(page);
  await page.screenshot({ path: `${pictures}temperature-sensor.png`, fullPage: true });
});
