// What is pressed is what is clicked, whatever the page hears between press and release.
import type { Page } from "@playwright/test";
import { answer, hot, show } from "./answers";
import { addRoom, expect, signUp, test, url } from "./user";

const news = answer(4, 12, { s36: { state: "critical", temperature: 35 } }, {
  incidents: [hot("s36"), hot("s2", { id: 2, room_name: "Hall 1" })],
});
const told = (page: Page) => page.getByText("Hall 4 is too hot", { exact: false }).first();

/** An overview on which nothing is wrong, and timers that the test moves. */
async function quiet(page: Page): Promise<void> {
  await signUp(page);
  await show(page, answer(4, 12));
  await page.clock.install();
  await page.goto(url("/"));
  await expect(page.getByText("Nothing is wrong", { exact: false })).toBeVisible();
  await expect(page.locator(".cells .cell")).toHaveCount(48);
  await expect(() => page.clock.pauseAt(Date.now() + 5000)).toPass();
}

/** As another tab tells it what it has heard; the page's own worker, whose clock goes on, hears the same. */
async function hear(page: Page, overview: object): Promise<void> {
  await show(page, overview);
  await page.evaluate(async (body) => {
    const { customerID, person } = JSON.parse(sessionStorage.getItem("coldaisle.session") ?? "{}") as
      { customerID: number; person: number };
    const [other, last] = ["", ""].map(() => new BroadcastChannel(`coldaisle.overview.${customerID}.${person}`));
    await new Promise((heard) => {
      last!.onmessage = heard;
      other!.postMessage({ etag: "news", overview: body });
    });
  }, JSON.stringify(overview));
  await page.clock.runFor(1000);
}

async function middle(page: Page, selector: string): Promise<{ x: number; y: number }> {
  const box = await page.locator(selector).boundingBox();
  return { x: (box?.x ?? 0) + (box?.width ?? 0) / 2, y: (box?.y ?? 0) + (box?.height ?? 0) / 2 };
}

test("an incident told during a press moves nothing before the click", async ({ page }) => {
  await quiet(page);
  const { x, y } = await middle(page, "[data-sensor=s30]");
  await page.mouse.move(x, y);
  await page.mouse.down();
  await hear(page, news);
  expect(await middle(page, "[data-sensor=s30]")).toEqual({ x, y });
  await page.mouse.up();
  await expect(page).toHaveURL(url("/sensors/s30"));
  await page.clock.resume();
  await expect(page, "the news are told once it is released").toHaveTitle(/^\(2\) /);
});

test("a press that ends elsewhere, in another window, or never, withholds nothing", async ({ page }) => {
  await quiet(page);
  let { x, y } = await middle(page, ".help");
  const press = async (overview: object) => {
    await page.mouse.move(x, y);
    await page.mouse.down();
    await hear(page, overview);
  };
  await press(news);
  await expect(told(page)).toHaveCount(0);
  await page.mouse.move(x, y + 300);
  await page.mouse.up();
  await page.clock.runFor(400);
  await expect(told(page)).toBeVisible();

  // What stands above the button has changed.
  ({ x, y } = await middle(page, ".help"));
  await press(answer(4, 12));
  await expect(told(page)).toBeVisible();
  await page.evaluate(() => dispatchEvent(new Event("blur")));
  await page.clock.runFor(100);
  await expect(told(page)).toHaveCount(0);
  await page.mouse.up();

  ({ x, y } = await middle(page, ".help"));
  await press(news);
  await expect(told(page)).toHaveCount(0);
  await page.clock.runFor(2500);
  await expect(told(page), "the longest that is withheld has passed").toBeVisible();
});

test("a double click does once what a click does", async ({ page }) => {
  await signUp(page);
  await addRoom(page, "Hall A");
  const sent: string[] = [];
  page.on("request", (request) => {
    if (request.method() === "POST" || request.method() === "DELETE") sent.push(new URL(request.url()).pathname);
  });
  await page.getByRole("button", { name: "Add sensor" }).click();
  const form = page.getByRole("dialog", { name: "Add sensor" });
  await form.getByLabel("Node id").fill("double-1");
  await form.getByLabel("Name").fill("Rack 1");
  await form.getByRole("button", { name: "Add sensor" }).dblclick();
  await expect(page.getByRole("rowheader").getByRole("link", { name: "Rack 1" })).toBeVisible();
  await page.getByRole("button", { name: "More of this room" }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete room" }).dblclick();
  await expect(page).toHaveURL(url("/rooms"));
  expect(sent.filter((path) => /new_sensor|delete_room/.test(path))).toHaveLength(2);
});

test.describe("by touch", () => {
  test.use({ hasTouch: true, viewport: { width: 390, height: 844 } });

  test("a tap is what was under the finger, and a finger that scrolls withholds nothing", async ({ page }) => {
    await quiet(page);
    const touch = await page.context().newCDPSession(page);
    const { x, y } = await middle(page, "[data-sensor=s3]");
    await touch.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [{ x, y }] });
    for (let i = 1; i <= 5; i++) {
      await touch.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints: [{ x, y: y - 20 * i }] });
    }
    await hear(page, news);
    await expect(told(page)).toBeVisible();
    await touch.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });

    await page.locator("[data-sensor=s3]").scrollIntoViewIfNeeded();
    const cell = await middle(page, "[data-sensor=s3]");
    await touch.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [cell] });
    await hear(page, answer(4, 12));
    await expect(told(page)).toBeAttached();
    await touch.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
    await expect(page).toHaveURL(url("/sensors/s3"));
  });
});

test("a press that failed is said beside its own incident, not beside the next in its place", async ({ page }) => {
  await signUp(page);
  await show(page, news);
  await page.route(/\/actions$/, (route) => route.abort());
  await page.goto(url("/"));
  const sentence = page.locator(".sentence");
  await sentence.getByRole("button", { name: /^I have it/ }).click();
  await expect(sentence.getByRole("alert")).toHaveText("The service cannot be reached.");
  await show(page, answer(4, 12, {}, { incidents: [hot("s2", { id: 2, room_name: "Hall 1" })] }));
  await expect(sentence).toContainText("Hall 1 is too hot");
  await expect(sentence.getByRole("alert")).toHaveCount(0);
});
