// Each page of the demonstration: accessible, within the width of a phone, and
// pictured for the README.
import { expect, expectAccessible, signInDemo, test, url } from "./user";

// SCREENSHOTS=1 renews the README's screenshots; without it a run changes no file in git.
const readme = process.env.SCREENSHOTS ? ["overview-light", "sensor-light", "alerts-light", "predictions-light"] : [];
const pictureOf = (name: string) =>
  new URL(`${readme.includes(name) ? "../../../docs/screenshots" : "../test-results/screenshots"}/${name}.png`, import.meta.url).pathname;
const pages = [
  { name: "overview", path: "/", ready: "article" },
  { name: "sensor", path: "sensor", ready: "canvas" },
  { name: "room", path: "room", ready: "article" },
  { name: "alerts", path: "/alerts", ready: ".episode" },
  { name: "thresholds", path: "/thresholds", ready: "form" },
  { name: "predictions", path: "/predictions", ready: "canvas" },
  { name: "gateways", path: "/gateways", ready: ".empty" },
  { name: "account", path: "/account", ready: "form" },
] as const;

for (const [look, scheme, width] of [["light", "light", 1280], ["dark", "dark", 1280], ["phone", "dark", 360]] as const) {
  test(`pages, ${look}`, async ({ page }) => {
    test.setTimeout(150_000);
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await page.setViewportSize({ width, height: width === 360 ? 760 : 900 });
    await page.goto(url());
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    await expectAccessible(page);
    await page.screenshot({ path: pictureOf(`sign-in-${look}`) });
    await signInDemo(page);
    for (const { name, path, ready } of pages) {
      await page.goto(url(path.startsWith("/") ? path : "/"));
      if (path === "sensor") await page.getByRole("link", { name: "Rack 2" }).first().click();
      if (path === "room") await page.getByRole("link", { name: "Server room 1" }).click();
      if (name === "alerts") await page.getByRole("button", { name: "History" }).click();
      await page.locator(ready).first().waitFor();
      await page.waitForLoadState("networkidle");
      await expectAccessible(page);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect(overflow, `${name} is wider than the screen`).toBeLessThanOrEqual(0);
      await page.screenshot({ path: pictureOf(`${name}-${look}`), fullPage: name !== "overview" });
    }
  });
}

test("the whole overview is reached by keyboard", async ({ page }) => {
  await signInDemo(page);
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to content" })).toBeFocused();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await expect(page.getByRole("button", { name: "Add room" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("dialog").getByLabel("Name")).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Add room" })).toBeFocused();
});
