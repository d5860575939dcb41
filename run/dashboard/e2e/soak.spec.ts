// A tab that is left open, and what it keeps. SOAK=3600 runs for an
// hour (npx playwright test soak); without it some dozens of answers come one after another.
import { answer, show } from "./answers";
import { expect, signUp, test } from "./user";

const seconds = Number(process.env.SOAK ?? 0);
const sensors = 500;

test("a tab left open keeps no more after many answers than after a few", async ({ page }) => {
  test.setTimeout((seconds + 120) * 1000);
  await signUp(page);
  const browser = await page.context().newCDPSession(page);
  const kept = async () => {
    await browser.send("HeapProfiler.collectGarbage");
    const { usedSize } = await browser.send("Runtime.getHeapUsage");
    const { nodes } = await browser.send("Memory.getDOMCounters");
    return { megabytes: usedSize / 2 ** 20, nodes };
  };
  let round = 0;
  /** Another answer, which the page takes before the next. */
  const next = async () => {
    const value = 20 + (++round % 50) / 10;
    await show(page, answer(5, sensors / 5, Object.fromEntries(Array.from({ length: sensors }, (_, i) => [`s${i}`, { temperature: value }]))));
    if (seconds === 0) await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange", { bubbles: true })));
    await expect(page.locator(`[data-sensor=s${sensors - 1}]`)).toHaveAttribute("aria-label", `Rack ${sensors / 5}, ${value.toFixed(1)} °C`, { timeout: 40_000 });
  };
  await page.clock.install();
  /** What was asked within 5 s counts as fresh: the page's clock, not ours, goes on. */
  const later = () => (seconds === 0 ? page.clock.fastForward(6000) : Promise.resolve());
  for (let i = 0; i < 4; i++) {
    await next();
    await later();
  }
  const few = await kept();
  const until = Date.now() + seconds * 1000;
  for (let i = 0; i < 12 || Date.now() < until; i++) {
    await next();
    await later();
  }
  const many = await kept();
  console.log(`kept after 4 answers of ${sensors} sensors: ${few.megabytes.toFixed(1)} MB, ${few.nodes} nodes; after ${round}: ${many.megabytes.toFixed(1)} MB, ${many.nodes} nodes`);
  expect(many.nodes).toBeLessThan(few.nodes * 1.1);
  expect(many.megabytes).toBeLessThan(few.megabytes * 1.2 + 1);
});
