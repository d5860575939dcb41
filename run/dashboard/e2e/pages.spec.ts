// Each page of the demonstration: accessible, and within the width of a phone.
import { expect, expectAccessible, openMe, signInDemo, test, url } from "./user";

const pictureOf = (name: string) => new URL(`../test-results/screenshots/${name}.png`, import.meta.url).pathname;
/** Training runs as a page may show them. Pictures of it are in no document. */
const runs = [1, 2].map((id) => ({
  id, status: "completed", triggered_by: "manual", started_at: `2026-03-0${id}T00:00:00Z`,
  completed_at: `2026-03-0${id}T00:00:09Z`,
  training_data_count: 1, validated_data_count: 1, error_message: null, model_version: "m",
  metrics: { anomaly: { f1_score: 0, accuracy: 0 }, forecasting: { rmse_temp: 0, mae_humidity: 0 } },
}));
const pages = [
  { name: "overview", path: "/", ready: ".cells .cell" },
  { name: "sensor", path: "sensor", ready: "canvas" },
  { name: "room", path: "room", ready: ".sensors tbody tr" },
  { name: "incidents", path: "/incidents?state=all", ready: ".incidents [data-row]" },
  { name: "incident", path: "incident", ready: ".timeline li" },
  { name: "rules", path: "/rules", ready: "form" },
  { name: "maintenance", path: "/maintenance", ready: ".calendar li" },
  { name: "predictions", path: "/predictions", ready: "canvas" },
  { name: "alerts", path: "/incidents?state=alerts", ready: "tbody tr" },
  { name: "gateways", path: "/gateways", ready: ".empty" },
  { name: "keys", path: "/keys", ready: ".empty" },
  { name: "watches", path: "/watches", ready: ".empty" },
  { name: "drills", path: "/drills", ready: ".empty" },
  { name: "records", path: "/records", ready: "select" },
  { name: "audit", path: "/audit", ready: "table" },
  { name: "account", path: "/account", ready: "form" },
  { name: "reports", path: "/reports", ready: ".report" },
  { name: "rooms", path: "/rooms", ready: "tbody tr" },
  { name: "settings", path: "/settings", ready: "select" },
  { name: "setup", path: "/setup", ready: ".steps" },
  { name: "wall", path: "/wall", ready: ".cells .cell" },
] as const;

/** Each page is looked through by axe, which takes seconds: the other looks have the
 * same elements, and their turn at night. */
const everyDay = [["light", "light", 1280], ["phone", "dark", 320]] as const;
const atNight = [["dark", "dark", 1280], ["forced", "light", 1280], ["forced-dark", "dark", 320]] as const;
const looks = process.env.NIGHTLY ? [...everyDay, ...atNight] : everyDay;
for (const [look, scheme, width] of looks) {
  test(`pages, ${look}`, async ({ page }) => {
    test.slow(); // some two dozen pages
    await page.emulateMedia({
      colorScheme: scheme, reducedMotion: "reduce", forcedColors: look.startsWith("forced") ? "active" : "none",
    });
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
      await expect(page.locator(".loading")).toHaveCount(0);
      await expectAccessible(page);
      const moving = await page.evaluate(() =>
        document.getAnimations().filter((animation) => animation.playState === "running").length);
      expect(moving, `${name} moves, though reduced motion is asked for`).toBe(0);
      const overflow = await page.evaluate(() =>
        document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect(overflow, `${name} is wider than the screen`).toBeLessThanOrEqual(0);
      await page.screenshot({ path: pictureOf(`${name}-${look}`), fullPage: name !== "overview" });
    }
  });
}

test("what is printed is dark on white, without what is pressed", async ({ page }) => {
  await page.emulateMedia({ colorScheme: "dark" });
  await signInDemo(page);
  await page.goto(url("/setup"));
  await expect(page.getByRole("button", { name: "Add room" })).toBeVisible();
  await page.emulateMedia({ media: "print" });
  for (const role of ["button", "navigation"] as const) await expect(page.getByRole(role), role).toHaveCount(0);
  await page.emulateMedia({ media: "screen" });
  await page.goto(url("/"));
  await page.getByRole("link", { name: /^Rack 2,/ }).first().click();
  /** Whether the first chart has a grid of this colour. */
  const grid = (colour: number[]) => page.locator("canvas").first().evaluate((canvas: HTMLCanvasElement, wanted) => {
    const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4) if (wanted.every((part, j) => data[i + j] === part)) return true;
    return false;
  }, colour);
  const [light, dark] = [[0xd3, 0xdc, 0xe2, 255], [0x2a, 0x38, 0x42, 255]];
  await expect.poll(() => grid(dark)).toBe(true);
  await page.emulateMedia({ media: "print" });
  await expect.poll(() => grid(light)).toBe(true);
  expect(await grid(dark)).toBe(false);
  await page.emulateMedia({ media: "screen" });
  await expect.poll(() => grid(dark)).toBe(true);
});

test("on a phone the pages are a bar at the bottom, within reach of a thumb", async ({ page }) => {
  await page.setViewportSize({ width: 320, height: 760 });
  await signInDemo(page);
  const pages = page.getByRole("navigation", { name: "Pages" });
  const box = await pages.boundingBox();
  expect((box?.y ?? 0) + (box?.height ?? 0)).toBe(760);
  for (const name of ["Now", "Incidents", "Rooms", "Reports", "Setup"]) {
    const target = await pages.getByRole("link", { name }).boundingBox();
    expect(target?.height ?? 0, name).toBeGreaterThanOrEqual(44);
    expect(target?.width ?? 0, name).toBeGreaterThanOrEqual(44);
  }
  await pages.getByRole("link", { name: "Setup" }).click();
  await page.getByRole("navigation", { name: "Setup" }).getByRole("link", { name: "Display" }).click();
  await expect(page.getByRole("heading", { name: "Display" })).toBeVisible();
  await expect(page.locator("#main")).toBeFocused();
  await openMe(page);
  await expect(page.getByRole("button", { name: "Sign out" })).toBeVisible();
  await expectAccessible(page);
  await page.screenshot({ path: pictureOf("menu-phone") });
  await page.keyboard.press("Escape");
  await expect(page.getByRole("button", { name: "Sign out" })).toBeHidden();
});

test("the way to a room is by keyboard alone", async ({ page }) => {
  await signInDemo(page);
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to content" })).toBeFocused();
  await page.goto(url("/rooms"));
  await expect(page.getByRole("heading", { name: "Rooms" })).toBeVisible();
  await page.locator("#main").focus();
  await page.keyboard.press("Tab");
  await expect(page.getByRole("button", { name: "Add room" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("dialog").getByLabel("Name")).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Add room" })).toBeFocused();
});

test("search finds rooms, sensors and pages, by / or Ctrl-K and the keyboard alone", async ({ page }) => {
  await signInDemo(page);
  const field = page.getByRole("combobox", { name: "Search" });
  await expect(field).toBeVisible();
  await page.keyboard.press("/");
  await expect(field).toBeFocused();
  await page.keyboard.type("rack 2");
  const options = page.getByRole("listbox", { name: "Found" }).getByRole("option");
  await expect(options.first()).toContainText("Rack 2");
  await expectAccessible(page);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/sensors\//);
  await expect(page.locator("h1")).toContainText("Rack 2");
  await page.keyboard.press("Control+k");
  await expect(field).toBeFocused();
  await page.keyboard.type("maintenance");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(url("/maintenance"));
  await expect(page.getByRole("heading", { level: 1, name: "Maintenance" })).toBeVisible();
  // Enter follows the last letter before the browser draws: fast fingers, or a busy machine.
  await page.keyboard.press("Control+k");
  await expect(field).toBeFocused();
  await field.evaluate(async (input: HTMLInputElement) => {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")?.set?.call(input, "gateways");
    input.dispatchEvent(new InputEvent("input", { bubbles: true }));
    await Promise.resolve();
    input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  });
  await expect(page).toHaveURL(url("/gateways"));
  // Pressed when the next page is there, and before the browser has drawn it.
  expect(await page.evaluate(async () => {
    document.querySelector<HTMLElement>(".rail a[href='/rooms']")?.click();
    while (!document.querySelector(".rail a[href='/rooms'][aria-current]")) await Promise.resolve();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true, bubbles: true }));
    await new Promise((drawn) => setTimeout(() => requestAnimationFrame(() => setTimeout(drawn)), 50));
    return document.activeElement?.getAttribute("aria-label");
  })).toBe("Search");
  await page.keyboard.type("no such thing");
  await expect(options).toHaveCount(0);
  await expect(page.getByText("Nothing found")).toBeAttached();
  await page.keyboard.press("Escape");
  await expect(field).toHaveValue("");
  // Who has switched single keys off types a "/" where they are.
  await page.goto(url("/settings"));
  await page.getByLabel("Single-key shortcuts").uncheck();
  await page.getByRole("heading", { name: "Keyboard" }).click();
  await page.keyboard.press("/");
  await expect(field).not.toBeFocused();
  await page.getByLabel("Single-key shortcuts").check();
});
