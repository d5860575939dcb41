// A tab that is left open, and what it keeps. SOAK=3600 runs for an
// hour (npx playwright test soak); without it some dozens of answers come one after another.
import { readFileSync } from "node:fs";
import { answer, show } from "./answers";
import { expect, signUp, test } from "./user";

const seconds = Number(process.env.SOAK ?? 0);
const sensors = 500;

test("a tab left open keeps no more after many answers than after a few", async ({ page, browser }) => {
  test.setTimeout((seconds + 300) * 1000);
  await signUp(page);
  // Longer than a session lasts: nothing but the overview is asked for, and that is answered here.
  await page.evaluate((expires) => {
    const session = JSON.parse(sessionStorage.getItem("coldaisle.session") ?? "{}") as object;
    sessionStorage.setItem("coldaisle.session", JSON.stringify({ ...session, expires }));
  }, Date.now() + (seconds + 86_400) * 1000);
  await page.reload();
  const tab = await page.context().newCDPSession(page);
  const whole = await browser.newBrowserCDPSession();
  /** Megabytes of the tab's process, its worker's included, where /proc tells them.
   * They grow: the browser keeps bodies of answers for a connected DevTools. */
  const resident = async () => {
    const { processInfo } = (await whole.send("SystemInfo.getProcessInfo")) as {
      processInfo: { type: string; id: number }[];
    };
    return Math.max(0, ...processInfo.filter(({ type }) => type === "renderer").map(({ id }) => {
      try {
        return Number(/^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${id}/status`, "utf8"))?.[1]) / 1024;
      } catch {
        return 0;
      }
    }));
  };
  const kept = async () => {
    await tab.send("HeapProfiler.collectGarbage");
    const { usedSize } = await tab.send("Runtime.getHeapUsage");
    const { nodes } = await tab.send("Memory.getDOMCounters");
    const megabytes = usedSize / 2 ** 20;
    console.log(`kept after ${round} answers of ${sensors} sensors: ${megabytes.toFixed(1)} MB of heap, ${nodes} `
      + `nodes, ${(await resident()).toFixed(0)} MB of process`);
    return { megabytes, nodes };
  };
  let round = 0;
  /** Another answer, which the page takes before the next. */
  const next = async () => {
    const value = 20 + (++round % 50) / 10;
    await show(
      page, answer(5, sensors / 5,
        Object.fromEntries(Array.from({ length: sensors }, (_, i) => [`s${i}`, { temperature: value }]))),
    );
    if (seconds === 0) {
      await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange", { bubbles: true })));
    }
    await expect(page.locator(`[data-sensor=s${sensors - 1}]`))
      .toHaveAttribute("aria-label", `Rack ${sensors / 5}, ${value.toFixed(1)} °C`, { timeout: 120_000 });
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
    if (i % 20 === 19) await kept();
  }
  const many = await kept();
  expect(many.nodes).toBeLessThan(few.nodes * 1.1);
  expect(many.megabytes).toBeLessThan(few.megabytes * 1.2 + 1);
});
