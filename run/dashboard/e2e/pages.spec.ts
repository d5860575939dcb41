// Each page of the demonstration: accessible, and within the width of a phone.
import { expect, expectAccessible, signInDemo, test, url } from "./user";

const pictureOf = (name: string) => new URL(`../test-results/screenshots/${name}.png`, import.meta.url).pathname;
/** Training runs as a page may show them. Pictures of it are in no document. */
const runs = [1, 2].map((id) => ({
  id, status: "completed", triggered_by: "manual", started_at: `2026-03-0${id}T00:00:00Z`, completed_at: `2026-03-0${id}T00:00:09Z`,
  training_data_count: 1, validated_data_count: 1, error_message: null, model_version: "m",
  metrics: { anomaly: { f1_score: 0, accuracy: 0 }, forecasting: { rmse_temp: 0, mae_humidity: 0 } },
}));
const pages = [
  { name: "overview", path: "/", ready: ".cell" },
  { name: "sensor", path: "sensor", ready: "canvas" },
  { name: "room", path: "room", ready: "article" },
  { name: "incidents", path: "/incidents?state=all", ready: ".incidents [data-row]" },
  { name: "incident", path: "incident", ready: ".timeline li" },
  { name: "rules", path: "/rules", ready: "form" },
  { name: "maintenance", path: "/maintenance", ready: ".calendar li" },
  { name: "predictions", path: "/predictions", ready: "canvas" },
  { name: "gateways", path: "/gateways", ready: ".empty" },
  { name: "keys", path: "/keys", ready: ".empty" },
  { name: "watches", path: "/watches", ready: ".empty" },
  { name: "audit", path: "/audit", ready: "table" },
  { name: "account", path: "/account", ready: "form" },
  { name: "report", path: "/report", ready: ".report" },
  { name: "settings", path: "/settings", ready: "select" },
  { name: "setup", path: "/setup", ready: ".steps" },
  { name: "wall", path: "/wall", ready: ".cell" },
] as const;

/** Each page is looked through by axe, which takes seconds: the other looks have the same elements, and their turn at night. */
const everyDay = [["light", "light", 1280], ["phone", "dark", 320]] as const;
const atNight = [["dark", "dark", 1280], ["forced", "light", 1280], ["forced-dark", "dark", 320]] as const;
const looks = process.env.NIGHTLY ? [...everyDay, ...atNight] : everyDay;
for (const [look, scheme, width] of looks) {
  test(`pages, ${look}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce", forcedColors: look.startsWith("forced") ? "active" : "none" });
    await page.setViewportSize({ width, height: width === 320 ? 760 : 900 });
    await page.goto(url());
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    await expectAccessible(page);
    await page.screenshot({ path: pictureOf(`sign-in-${look}`) });
    await signInDemo(page);
    await page.route(/\/ml\/retraining\/history/, (route) => route.fulfill({ json: runs }));
    for (const { name, path, ready } of pages) {
      await page.goto(url(path.startsWith("/") ? path : "/"));
      if (path === "sensor") await page.getByRole("link", { name: /^Rack 2,/ }).first().click();
      if (path === "room") await page.getByRole("link", { name: "Server room 1", exact: true }).click();
      if (path === "incident") {
        await page.goto(url("/incidents?state=all"));
        await page.locator(".incidents [data-row]").first().click();
      }
      await page.locator(ready).first().waitFor();
      await page.waitForLoadState("networkidle");
      await expectAccessible(page);
      const moving = await page.evaluate(() => document.getAnimations().filter((animation) => animation.playState === "running").length);
      expect(moving, `${name} moves, though reduced motion is asked for`).toBe(0);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect(overflow, `${name} is wider than the screen`).toBeLessThanOrEqual(0);
      await page.screenshot({ path: pictureOf(`${name}-${look}`), fullPage: name !== "overview" });
    }
  });
}

test("on a phone the pages are behind a menu, which keys open and close", async ({ page }) => {
  await page.setViewportSize({ width: 320, height: 760 });
  await signInDemo(page);
  const menu = page.getByRole("button", { name: /^Menu/ });
  const pages = page.getByRole("navigation", { name: "Pages" });
  await expect(pages).toBeHidden();
  await menu.focus();
  await page.keyboard.press("Enter");
  await expect(menu).toHaveAttribute("aria-expanded", "true");
  await expect(page.getByRole("button", { name: "Sign out" })).toBeVisible();
  await expectAccessible(page);
  await page.screenshot({ path: pictureOf("menu-phone") });
  await page.keyboard.press("Tab");
  await page.keyboard.press("Escape");
  await expect(pages).toBeHidden();
  await expect(menu).toBeFocused();
  await menu.click();
  await pages.getByRole("link", { name: "Settings" }).click();
  await expect(page.getByRole("heading", { name: "Display" })).toBeVisible();
  await expect(pages).toBeHidden();
  await expect(page.locator("#main")).toBeFocused();
});

test("the whole overview is reached by keyboard", async ({ page }) => {
  await signInDemo(page);
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to content" })).toBeFocused();
  await page.keyboard.press("Enter");
  // Past the links of the sentence, if there are incidents.
  await expect(async () => {
    await page.keyboard.press("Tab");
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Add room");
  }).toPass({ intervals: [0] });
  await page.keyboard.press("Enter");
  await expect(page.getByRole("dialog").getByLabel("Name")).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Add room" })).toBeFocused();
});
