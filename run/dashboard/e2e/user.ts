// What a person does in the tests, and what is watched while they do it.
import { readdirSync } from "node:fs";
import AxeBuilder from "@axe-core/playwright";
import { expect, test as base, type Locator, type Page } from "@playwright/test";

export const url = (path = "/") => `${process.env.COLDAISLE_URL}${path}`;
export const password = "Cold-aisle-1";
/** Of the hour that comes twice when clocks are set back the page says which. */
export const timeOfDay = String.raw`\d\d:\d\d( CES?T)?`;
/** A time as the page shows it, with its day, and its year, where these are not the present ones. */
export const shownTime = String.raw`(\d+ \w+( \d{4})?, )?${timeOfDay}`;
let people = 0;

/** Every test watches that no request leaves the origin and that the policy refuses nothing. */
export const test = base.extend<{ watched: void }>({
  watched: [async ({ page }, use) => {
    const foreignRequests: string[] = [];
    const refusals: string[] = [];
    page.on("request", (request) => {
      const asked = new URL(request.url());
      if (asked.protocol !== "blob:" && asked.origin !== new URL(url()).origin) foreignRequests.push(request.url());
    });
    page.on("console", (message) => {
      if (/Content Security Policy/.test(message.text())) refusals.push(message.text());
    });
    page.on("pageerror", (error) => refusals.push(String(error)));
    await use();
    expect(foreignRequests, "requests to other origins").toEqual([]);
    expect(refusals, "refusals of the policy and uncaught errors").toEqual([]);
  }, { auto: true }],
});
export { expect };

/** An account by the form. */
export async function signUpByForm(page: Page): Promise<void> {
  await page.goto(url());
  await page.getByRole("button", { name: "Create an account" }).click();
  const create = page.getByRole("button", { name: "Create account" });
  await expect(create).toBeVisible();
  // As signInAs, and as somebody else: a service that was busy may have made the account.
  await expect(async () => {
    if (await create.isVisible()) {
      const { name, email } = nobody();
      await page.getByLabel("Username").fill(name, { timeout: 5000 });
      await page.getByLabel("E-mail").fill(email, { timeout: 5000 });
      await page.getByLabel("Password").fill(password, { timeout: 5000 });
      await create.click({ timeout: 5000 });
    }
    await expect(page.getByRole("heading", { name: "Now", exact: true })).toBeVisible({ timeout: 1000 });
  }).toPass();
}

/** An account of its own for a test, signed in, on the overview. Returns its e-mail address. */
export async function signUp(page: Page): Promise<string> {
  const { name, email } = nobody();
  await post("/api/v1/customers/register", { email, username: name, password });
  await startSession(page, email, password);
  return email;
}

// A username has at most 12 characters. Digits alone: a page shows the address, and letters by
// chance spell what a test looks for.
function nobody(): { name: string; email: string } {
  const name = `p${Date.now() % 1e7}${process.env.TEST_PARALLEL_INDEX}${people++}`;
  return { name, email: `${name}@example.com` };
}

/** Asks as often as the service is too busy for a password: 503. */
async function post(path: string, body: object): Promise<unknown> {
  let answer: Response | undefined;
  await expect(async () => {
    answer = await fetch(url(path), {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    expect(answer.status).not.toBe(503);
  }).toPass();
  expect(answer?.ok, `${path} answered ${answer?.status}`).toBe(true);
  return answer?.json();
}

/** What a tab keeps that signed in. */
export async function sessionOf(email: string, secret: string) {
  const { access_token: token } =
    (await post("/api/v1/customers/login", { email, password: secret })) as { access_token: string };
  const { sub, person, exp } = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString()) as {
    sub: string; person: number; exp: number;
  };
  return { token, customerID: Number(sub), person, email, expires: exp * 1000 };
}

/** As a tab that signed in and is loaded again: no test but those of the form waits for it. */
async function startSession(page: Page, email: string, secret: string): Promise<void> {
  const session = await sessionOf(email, secret);
  await page.goto(url("/icon.svg"));
  await page.evaluate((kept) => sessionStorage.setItem("coldaisle.session", JSON.stringify(kept)), session);
  await page.goto(url());
  await expect(page.getByRole("heading", { name: "Now", exact: true })).toBeVisible();
}

export async function signInAs(page: Page, email: string, secret: string): Promise<void> {
  await page.goto(url());
  await page.getByLabel("E-mail").fill(email);
  await page.getByLabel("Password").fill(secret);
  await pressUntil(page.getByRole("button", { name: "Sign in" }), (patience) =>
    expect(page.getByRole("heading", { name: "Now", exact: true })).toBeVisible(patience));
}

/** Presses again where a busy service has not answered in the page's ten seconds, if nothing stands over the button. */
export async function pressUntil(
  button: Locator, done: (patience: { timeout: number }) => Promise<void>,
): Promise<void> {
  await expect(async () => {
    if (await button.isVisible()) await button.click({ timeout: 1000 }).catch(() => undefined);
    await done({ timeout: 1000 });
  }).toPass();
}

/** Signs in by a dialog over the page. */
export async function signInAgain(dialog: Locator, secret: string): Promise<void> {
  await dialog.getByLabel("Password").fill(secret);
  await pressUntil(dialog.getByRole("button", { name: "Sign in" }), (patience) =>
    expect(dialog).toHaveCount(0, patience));
}

export const signInDemo = (page: Page) =>
  startSession(page, "demo@example.com", process.env.COLDAISLE_DEMO_PASSWORD ?? "");

export async function addRoom(page: Page, name: string): Promise<void> {
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Rooms" }).click();
  await page.getByRole("button", { name: "Add room" }).first().click();
  await page.getByRole("dialog").getByLabel("Name").fill(name);
  await page.getByRole("dialog").getByRole("button", { name: "Add room" }).click();
  await page.getByRole("link", { name, exact: true }).click();
  await expect(page.getByRole("heading", { name, level: 1 })).toBeVisible();
}

export async function addSensor(page: Page, id: string, name: string): Promise<void> {
  await page.getByRole("button", { name: "Add sensor" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Node id").fill(id);
  await dialog.getByLabel("Name").fill(name);
  await dialog.getByRole("button", { name: "Add sensor" }).click();
  await expect(page.getByRole("rowheader").getByRole("link", { name })).toBeVisible();
}

/** A node on the wall: sends one reading to the gateway. */
export async function sendReading(node: string, temperature: number, humidity: number): Promise<void> {
  const answer = await fetch(`${process.env.COLDAISLE_GATEWAY}/api/v1/message`, {
    method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ id: crypto.randomUUID().slice(0, 8), node_id: node, temperature, humidity }),
  });
  expect(answer.status).toBe(200);
}

/** Opens what is the person's own: account, colours, the way out. */
export const openMe = (page: Page) => page.getByRole("button", { name: /^You: / }).click();

/** The incident that readings of a node have begun. */
export async function incidentOf(token: string, node: string): Promise<number> {
  let found: { id: number }[] = [];
  await expect.poll(async () =>
    (found = await ask<{ id: number }[]>(token, "GET", `/api/v1/incidents?state=lasting&sensor_id=${node}`)).length)
    .toBe(1);
  return found[0]?.id ?? 0;
}

export async function expectAccessible(page: Page): Promise<void> {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const grave = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  expect(grave.map(({ id, nodes }) =>
    `${id}: ${nodes.map((node) => `${node.target.join(" ")} ${node.failureSummary ?? ""}`).join("; ")}`))
    .toEqual([]);
}

/** An idle page has loaded every chunk. */
export async function expectPreloaded(page: Page): Promise<void> {
  const built = readdirSync(new URL("../site/built/assets/", import.meta.url)).filter((name) => name.endsWith(".js"));
  await expect.poll(
    () => page.evaluate(() => performance.getEntriesByType("resource").map(({ name }) => name.replace(/.*\//, ""))),
  ).toEqual(expect.arrayContaining(built));
}

/** Uses the API beside the page. */
export async function ask<T = { id: number }>(token: string, method: string, path: string, body?: object): Promise<T> {
  const answer = await fetch(url(path), {
    method, headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  expect(answer.ok, `${method} ${path} answered ${answer.status}`).toBe(true);
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

/** Chooses a range: the second quarter of the first chart. */
export async function dragAcrossChart(page: Page): Promise<void> {
  const chart = page.locator(".u-over").first();
  await chart.hover();
  const { x, y, width } = await chart.evaluate((drawn) => drawn.getBoundingClientRect().toJSON() as DOMRect);
  await page.mouse.move(x + width / 4, y + 50);
  await page.mouse.down();
  await page.mouse.move(x + width / 2, y + 60, { steps: 5 });
  await page.mouse.up();
}

/** The token of the page's session, to use the API beside it. */
export const tokenOf = (page: Page) =>
  page.evaluate(() => (JSON.parse(sessionStorage.getItem("coldaisle.session") ?? "{}") as { token: string }).token);
