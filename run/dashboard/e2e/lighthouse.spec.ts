// Lighthouse's scores of the pages that are looked at most. npm run lighthouse installs it,
// which takes 176 MB, and runs this; the other tests are run without it.
import { expect, test } from "@playwright/test";
import { query } from "./seed";
import { password, sessionOf, url } from "./user";

interface Result {
  lhr: { categories: Record<string, { score: number | null }>; audits: Record<string, {
    score: number | null; title: string; displayValue?: string; scoreDisplayMode: string;
  }> };
}
interface Tab {
  goto(address: string): Promise<unknown>;
  evaluate(run: (text: string) => void, text: string): Promise<unknown>; close(): Promise<void>;
}

const promised = 95;
/** Of several runs the best: a busy machine only takes from the score. */
const runs = 3;

test("Lighthouse scores each page at 95 or more", async ({ launchOptions }) => {
  test.setTimeout(3_600_000);
  // Not among the dependencies: their types are unknown.
  const load = async (name: string) => (await import(name)) as { default: never };
  const lighthouse =
    (await load("lighthouse")).default as (address: string, flags: object, config: object
      | undefined, tab: Tab) => Promise<Result>;
  const desktop = (await load("lighthouse/core/config/desktop-config.js")).default as object;
  const puppeteer = (await load("puppeteer-core")).default as {
    launch(options: object): Promise<{ newPage(): Promise<Tab>; close(): Promise<void> }>;
  };
  const browser = await puppeteer.launch({
    executablePath: launchOptions.executablePath, args: [...(launchOptions.args ?? []), "--headless=new"],
  });
  const [row] = await query("SELECT s.node_id FROM sensors s JOIN customers c ON c.id = s.customer_id WHERE c.email "
    + "= 'demo@example.com' ORDER BY s.key LIMIT 1");
  const session = JSON.stringify(await sessionOf("demo@example.com", process.env.COLDAISLE_DEMO_PASSWORD ?? password));
  const missed: string[] = [];
  try {
    for (const [name, path] of [["sign-in", "/"], ["overview", "/"], ["incidents", "/incidents?state=all"],
      ["sensor", `/sensors/${String(row?.node_id)}`]] as const) {
      for (const [form, config] of [["desktop", desktop], ["phone", undefined]] as const) {
        const best: Record<string, number> = {};
        let below: string[] = [];
        for (let run = 0; run < runs && (best.performance ?? 0) < promised; run++) {
          const tab = await browser.newPage();
          await tab.goto(url("/icon.svg"));
          if (name !== "sign-in") {
            await tab.evaluate((kept) => sessionStorage.setItem("coldaisle.session", kept), session);
          }
          const { lhr } = await lighthouse(url(path),
            { disableStorageReset: true, logLevel: "error",
              onlyCategories: ["performance", "accessibility", "best-practices", "seo"] },
            config, tab);
          await tab.close();
          for (const [category, { score }] of Object.entries(lhr.categories)) {
            best[category] = Math.max(best[category] ?? 0, Math.round((score ?? 0) * 100));
          }
          below = Object.entries(lhr.audits).filter(([, { score, scoreDisplayMode }]) =>
            score !== null && score < 0.9 && scoreDisplayMode !== "informative")
            .map(([id, { displayValue }]) => `${id}${displayValue ? ` (${displayValue})` : ""}`);
        }
        console.log(
          `${name}, ${form}: `
            + `${Object.entries(best).map(([category, score]) => `${category} ${score}`)
              .join(", ")}${below.length > 0 ? `; below 0.9: ${below.join(", ")}` : ""}`,
        );
        for (const [category, score] of Object.entries(best)) {
          // CI's machine may be any: there a page's speed is only printed.
          if (score < promised && !(process.env.CI && category === "performance")) {
            missed.push(`${name}, ${form}: ${category} ${score}`);
          }
        }
      }
    }
  } finally {
    await browser.close();
  }
  expect(missed).toEqual([]);
});
