// What a screen reader announces by itself, and what it and the keyboard keep while the page changes.
import type { Page } from "@playwright/test";
import { answer, asked, hot, show } from "./answers";
import { expect, signUp, test, url } from "./user";

type Heard = Window & { announced: string[] };

/** Collects what live regions announce from now on. */
const listen = (page: Page) => page.evaluate(() => {
  const { announced } = Object.assign(window as unknown as Heard, { announced: [] as string[] });
  const live = (node: Node) => {
    const region = (node instanceof Element ? node : node.parentElement)
      ?.closest("[aria-live], [role=status], [role=alert]");
    return region && region.getAttribute("aria-live") !== "off" && !region.closest("[aria-busy=true]");
  };
  new MutationObserver((changes) => {
    for (const { target, addedNodes } of changes) {
      for (const node of [...addedNodes, ...(target instanceof Text ? [target] : [])]) {
        if (live(node) && node.textContent) announced.push(node.textContent);
      }
    }
  }).observe(document, { subtree: true, childList: true, characterData: true });
});
const announced = (page: Page) => page.evaluate(() => (window as unknown as Heard).announced.join("|"));

const burning = (value: number, more = {}) => {
  const base = hot("s36");
  return answer(4, 12, { s36: { state: "critical", temperature: value } },
    { incidents: [{ ...base, now: { ...base.now!, value }, ...more }] });
};

test("what burns and who has it is announced, and not each value", async ({ page }) => {
  await signUp(page);
  await show(page, burning(33.8));
  await page.reload();
  const sentence = page.locator(".says");
  await expect(sentence).toContainText("33.8 °C at Rack 7");
  await expect(sentence).toHaveText(/^\s*critical: Hall 4 is too hot/);
  await listen(page);
  await show(page, burning(34.9));
  await expect(sentence).toContainText("34.9 °C at Rack 7");
  expect(await announced(page)).toBe("");
  await show(page, burning(36, { state: "taken", taken_by: "ana" }));
  await expect(sentence).toContainText("ana has it.");
  expect(await announced(page)).toContain("ana has it.");
  expect(await announced(page)).not.toContain("36.0");
});

test("a watch that is silent is announced once, and not each minute", async ({ page }) => {
  await signUp(page);
  const silentFor = (minutes: number) =>
    answer(1, 1, {}, { watch_problems: [`Nobody would be woken: the watch of A has been silent for ${minutes} min`] });
  await show(page, silentFor(20));
  await page.reload();
  await expect(page.getByRole("alert")).toHaveText(/the watch of A has been silent for 20 min$/);
  await listen(page);
  await show(page, silentFor(21));
  await expect(page.getByRole("alert")).toHaveText(/for 21 min$/);
  expect(await announced(page)).toBe("");
});

/** Shows the page of an incident by answers of its own, which it asks for when a minute is over. */
async function follow(page: Page, body: () => object | undefined) {
  await signUp(page);
  await page.clock.install();
  await page.route(/\/api\/v1\/incidents\/1$/, (route) => {
    const json = body();
    return json === undefined ? route.continue() : route.fulfill({ json });
  });
  await page.goto(url("/incidents/1"));
  await expect(page.getByRole("heading", { name: "Hall 4 is too hot", level: 1 })).toBeVisible();
}

test("the end of an incident is announced on its page", async ({ page }) => {
  const lasts = { ...hot("s36"), timeline: [] };
  let body = lasts;
  await follow(page, () => body);
  await listen(page);
  body = { ...lasts, state: "over", breaking: false, end_time: new Date().toISOString(), now: null };
  await page.clock.runFor(60_000);
  await expect(page.getByRole("heading", { name: "Hall 4 was too hot", level: 1 })).toBeVisible();
  expect(await announced(page)).toContain("Hall 4 was too hot");
  body = lasts;
  await page.clock.runFor(60_000);
  await expect(page.getByRole("heading", { name: "Hall 4 is too hot", level: 1 }), "a late reading").toBeVisible();
});

test("an incident that a late reading withdraws goes from its page", async ({ page }) => {
  let body: object | undefined = { ...hot("s36"), timeline: [] };
  await follow(page, () => body);
  body = undefined; // the service knows none of this number
  await page.clock.runFor(60_000);
  await expect(page.getByRole("heading", { name: "Incident not found", level: 1 })).toBeVisible();
  await page.getByRole("link", { name: "Go to the incidents" }).click();
  await expect(page).toHaveURL(url("/incidents"));
});

test("a loss of contact is announced once, however long it lasts", async ({ page }) => {
  await signUp(page);
  await show(page, burning(33.8));
  await page.clock.install();
  await page.reload();
  await expect(page.locator(".says")).toContainText("33.8 °C");
  // This alone: parts of the page that are still loading would fail with alerts of their own.
  await page.route(asked, (route) => route.abort());
  await expect(page.getByRole("alert")).toContainText("No contact since");
  await expect(page.getByRole("alert")).toContainText("The service cannot be reached.");
  await listen(page);
  await page.clock.runFor(90_000);
  expect(await announced(page)).toBe("");
});

test("that a form is saved is announced", async ({ page }) => {
  await signUp(page);
  await page.goto(url("/account"));
  await expect(page.getByLabel("Your name")).toBeVisible();
  await listen(page);
  await page.getByRole("button", { name: "Save profile" }).click();
  await expect(page.getByText("Saved.")).toBeVisible();
  expect(await announced(page)).toContain("Saved.");
});

test("a comment outlives its incident's place on the page", async ({ page }) => {
  await signUp(page);
  const taken = { state: "taken", taken_by: "ana" } as const;
  const first = hot("s36", taken);
  await show(page, answer(4, 12, {}, { incidents: [first, hot("s2", { id: 2, room_name: "Hall 1", ...taken })] }));
  await page.reload();
  const card = page.getByRole("article", { name: "Hall 1 is too hot" });
  await expect(card.getByRole("heading")).toHaveText("Hall 1 is too hot, critical");
  await card.getByRole("button", { name: /^Comment/ }).click();
  const comment = page.getByRole("dialog").getByLabel("Comment");
  await comment.fill("The fan is replaced");
  await show(page, answer(4, 12));
  await expect(page.getByText("Nothing is wrong", { exact: false })).toBeVisible();
  await expect(comment).toHaveValue("The fan is replaced");
  await expect(comment).toBeFocused();
  let answered: () => void = () => undefined;
  const waits = new Promise<void>((resolve) => { answered = resolve; });
  await page.route(/\/incidents\/2\/actions$/, async (route) => {
    await waits;
    await route.fulfill({ json: first });
  });
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: "Cancel" }), "it is on its way").toBeDisabled();
  await expect(page.locator("form .actions"), "Escape asks the form").toHaveAttribute("aria-busy", "true");
  answered();
  await expect(comment).toHaveCount(0);
  await expect(page.locator("#main"), "the button is gone").toBeFocused();
});

test("what had the focus leaves it to the page when its incident is over", async ({ page }) => {
  await signUp(page);
  const [first, second] = [hot("s36"), hot("s2", { id: 2, room_name: "Hall 1" })];
  const both = answer(4, 12, {}, { incidents: [first, second] });
  const goesWith = async (path: string, link: string, rest: object) => {
    await show(page, both);
    await page.goto(url(path));
    const had = page.getByRole("link", { name: new RegExp(`^${link}`) });
    await had.focus();
    await expect(had).toBeFocused();
    await show(page, rest);
    await expect(had).toHaveCount(0);
    await expect(page.locator("#main"), path + link).toBeFocused();
  };
  await goesWith("/", "Hall 1 is too hot", answer(4, 12, {}, { incidents: [first] }));
  await goesWith("/", "Open", answer(4, 12));
  await goesWith("/incidents", "Hall 1 is too hot", answer(4, 12, {}, { incidents: [first] }));
});
