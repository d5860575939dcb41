// The two promises about time, measured and printed. Machines are noisy: a test
// fails only when a promise is missed by far.
import { ask, expect, signUp, test, tokenOf, url } from "./user";
import { query, seedReadings } from "./seed";

const missedByFar = 4;

test("200 sensors are seen within 1.5 s on a CPU four times slower", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  const nodes: string[] = [];
  for (let r = 0; r < 10; r++) {
    const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: `Room ${r + 1}` });
    for (let s = 0; s < 20; s++) {
      const id = `speed-${room.id}-${s}`;
      await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: `Rack ${s + 1}`, type: "ESP32-DHT22", room_id: room.id });
      nodes.push(id);
    }
  }
  await seedReadings(nodes, 3600, 5, 300);
  const browser = await page.context().newCDPSession(page);
  await browser.send("Network.setCacheDisabled", { cacheDisabled: true });
  await browser.send("Emulation.setCPUThrottlingRate", { rate: 4 });
  await page.addInitScript(() => {
    const watch = new MutationObserver(() => {
      if (document.querySelectorAll(".cell").length < 200) return;
      watch.disconnect();
      requestAnimationFrame(() => setTimeout(() => performance.mark("seen")));
    });
    watch.observe(document, { childList: true, subtree: true });
  });
  await page.reload();
  await page.waitForFunction(() => performance.getEntriesByName("seen").length > 0);
  const time = await page.evaluate(() => performance.getEntriesByName("seen")[0]?.startTime ?? Infinity);
  console.log(`first view of 200 sensors at 4x CPU throttle: ${time.toFixed(0)} ms (promised: under 1500)`);
  expect(time).toBeLessThan(missedByFar * 1500);
});

test("a range of 100,000 readings is drawn within 300 ms", async ({ page }) => {
  await signUp(page);
  const token = await tokenOf(page);
  const room = await ask(token, "POST", "/api/v1/server_rooms/new_room", { name: "Archive" });
  const id = `archive-${room.id}`;
  await ask(token, "POST", "/api/v1/sensors/new_sensor", { id, name: "Archive", type: "ESP32-DHT22", room_id: room.id });
  await seedReadings([id], 29 * 86_400, 60, 25);
  const [stored] = await query("SELECT count(*)::int AS n FROM sensor_data.readings WHERE node_id = $1", [id]);
  expect(stored?.n).toBeGreaterThan(100_000);
  await page.goto(url(`/sensors/${id}`));
  await page.locator("canvas").first().waitFor();
  await page.evaluate(() => performance.clearMeasures("chart"));
  const answered = page.waitForResponse((response) => response.url().includes("/historical/") && response.url().includes("max_points=720"));
  await page.getByRole("button", { name: "30d" }).click();
  await (await answered).finished();
  // The old range is drawn again meanwhile; what counts is drawn after the answer.
  const measured = await page.waitForFunction(() => {
    const asked = performance.getEntriesByType("resource").filter(({ name }) => name.includes("max_points=720")).at(-1) as PerformanceResourceTiming;
    const drawn = performance.getEntriesByName("chart").filter(({ startTime }) => asked.responseEnd > 0 && startTime >= asked.responseEnd);
    if (drawn.length < 2) return null;
    return { answer: asked.duration, draw: Math.max(...drawn.map((entry) => entry.startTime + entry.duration)) - asked.responseEnd };
  });
  const result = (await measured.jsonValue()) ?? { answer: NaN, draw: NaN };
  console.log(`${String(stored?.n)} readings: answered in ${result.answer.toFixed(0)} ms, drawn ${result.draw.toFixed(0)} ms later (promised: under 300 in all)`);
  expect(result.answer + result.draw).toBeLessThan(missedByFar * 300);
});
