// A session over several tabs and near its end.
import { answer, hot, show } from "./answers";
import {
  expect, expectAccessible, openMe, password, pressUntil, signInAgain, signUp, test, tokenOf, url,
} from "./user";

test("tabs share a session: a new one is signed in, and signing out is of all", async ({ page, context }) => {
  await signUp(page);
  const token = await tokenOf(page);
  const second = await context.newPage();
  await second.goto(url("/rules"));
  await expect(second.getByRole("heading", { name: "Rules", level: 1 })).toBeVisible();
  expect(await tokenOf(second)).toBe(token);
  await openMe(second);
  await second.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
  await second.close();
});

test("the tab of who is signed out says nothing of incidents or of contact", async ({ page }) => {
  await signUp(page);
  await show(page, answer(4, 12, {}, { incidents: [hot("s36")] }));
  await page.reload();
  await expect(page).toHaveTitle("(1) Now · Coldaisle");
  await openMe(page);
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page).toHaveTitle("Sign in · Coldaisle");
  await expect(page.locator("link[rel=icon]")).toHaveAttribute("href", "/icon.svg");
  await page.goto(url("/join#unknown"));
  await expect(page.getByRole("alert")).toContainText("Invitation is unknown");
  // Between two addresses that differ behind # alone the browser loads nothing.
  const newer = { username: "nordwind", email: "ana@example.com", role: "viewer", invited_by: "Ben", accepted: false };
  await page.route(/\/invitations\/accept$/, (route) => route.fulfill({ json: newer }));
  await page.goto(url("/join#newer"));
  await expect(page.getByText("Ben invites you into the account nordwind.")).toBeVisible();
  await expect(page).toHaveTitle("Invitation · Coldaisle");
});

test("a press that the end of the session refused is made again, and leaves no error", async ({ page }) => {
  await signUp(page);
  await show(page, answer(4, 12, {}, { incidents: [hot("s36")] }));
  const actions = /\/incidents\/1\/actions$/;
  const refusal = { status: 401, json: { detail: "Could not validate credentials" } };
  await page.route(actions, (route) => route.fulfill(refusal));
  await page.reload();
  const take = page.getByRole("button", { name: /^I have it/ });
  await take.focus();
  await page.keyboard.press("Enter");
  const ended = page.getByRole("dialog", { name: "Your session has ended" });
  await ended.getByLabel("Password").fill(password);
  await page.keyboard.press("Enter");
  await pressUntil(ended.getByRole("button", { name: "Sign in" }), (patience) =>
    expect(ended).toHaveCount(0, patience));
  await expect(take).toBeFocused();
  await expect(page.getByText("Could not validate credentials")).toHaveCount(0);
});

test("a changed password holds though signing in by it fails", async ({ page }) => {
  await signUp(page);
  await page.goto(url("/account"));
  await page.route(/\/customers\/login$/, (route) => route.abort());
  await page.getByLabel("New password").fill("Another-one-2");
  await pressUntil(page.getByRole("button", { name: "Change password" }), (patience) =>
    expect(page.getByText("Changed.")).toBeAttached(patience));
  const dialog = page.getByRole("dialog", { name: "Your session has ended" });
  await page.unroute(/\/customers\/login$/);
  await signInAgain(dialog, "Another-one-2");
});

test("after another address is saved, that is who is signed in, and no form that was open before takes it back",
  async ({ page, context }) => {
  await signUp(page);
  await page.goto(url("/account"));
  const second = await context.newPage();
  await second.goto(url("/account"));
  await second.getByLabel("Your name").fill("Ana");
  const email = `moved-${Date.now()}@example.com`;
  await page.getByLabel("E-mail").fill(email);
  await page.getByRole("button", { name: "Save profile" }).click();
  await expect(page.getByRole("button", { name: `You: ${email}` })).toBeVisible();
  await expect(page.getByText("Saved.")).toBeVisible();
  let release = () => {};
  const typed = new Promise<void>((resolve) => { release = resolve; });
  await second.route(/\/customers\/\d+$/, async (route) => {
    await typed;
    await route.continue();
  });
  await second.getByRole("button", { name: "Save profile" }).click();
  await second.getByLabel("Your name").fill("Ana Maria");
  release();
  await expect(second.getByText("Saved.")).toBeVisible();
  await expect(second.getByLabel("E-mail")).toHaveValue(email);
  await expect(second.getByLabel("Your name"), "typed while it was on its way").toHaveValue("Ana Maria");
  await second.close();
});

test("three minutes before its end a session is renewed in place, in every tab, and nothing typed is lost",
  async ({ page, context }) => {
  await page.clock.install();
  await signUp(page);
  await page.goto(url("/rules"));
  await page.getByRole("link", { name: "Maintenance" }).click();
  const left = await page.evaluate(() =>
    (JSON.parse(sessionStorage.getItem("coldaisle.session") ?? "") as { expires: number }).expires - Date.now());
  await page.clock.fastForward(left - 175_000);
  await expect(page.getByText("Your session ends in 3 min.")).toBeVisible();
  await expectAccessible(page);
  const second = await context.newPage();
  await second.goto(url());
  await expect(second.getByText("No server room yet")).toBeVisible();
  const old = await tokenOf(second);

  await page.getByRole("button", { name: "Stay signed in" }).click();
  const dialog = page.getByRole("dialog", { name: "Stay signed in" });
  await dialog.getByLabel("Password").fill(password.slice(0, 5));
  // The end comes while the password is typed.
  await page.clock.fastForward("03:00");
  const ended = page.getByRole("dialog", { name: "Your session has ended" });
  await expect(ended.getByLabel("Password")).toHaveValue(password.slice(0, 5));
  await page.goBack();
  await expect(page, "the page below stays").toHaveURL(url("/maintenance"));
  await expectAccessible(page);
  await page.clock.setSystemTime(new Date());
  // A token's second must be another one for the tokens to differ.
  const { iat } = JSON.parse(Buffer.from(old.split(".")[1] ?? "", "base64url").toString()) as { iat: number };
  await expect.poll(() => Math.floor(Date.now() / 1000)).toBeGreaterThan(iat);
  await signInAgain(ended, password);
  await expect.poll(() => tokenOf(second)).not.toBe(old);
  await second.close();
});

test("what is typed in a form stays when the session ends over it, and so does the focus", async ({ page }) => {
  await page.clock.install();
  await signUp(page);
  await page.goto(url("/maintenance"));
  await page.getByRole("button", { name: "Add window" }).click();
  const comment = page.getByLabel("What for");
  await comment.fill("Filters are changed");
  await comment.focus();
  await page.clock.fastForward("31:00");
  const ended = page.getByRole("dialog", { name: "Your session has ended" });
  await expect(ended.getByLabel("Password")).toBeFocused();
  await page.clock.setSystemTime(new Date());
  await signInAgain(ended, password);
  await expect(comment).toHaveValue("Filters are changed");
  await expect(comment).toBeFocused();
});

test("what is typed in a dialog stays when Back is pressed or the page is loaded again", async ({ page }) => {
  await signUp(page);
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Rooms" }).click();
  await page.getByRole("button", { name: "Add room" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("Cellar");
  for (let i = 0; i < 2; i++) {
    await page.goBack();
    await expect(dialog.getByText("Cancel discards it.", { exact: false })).toBeVisible();
    await expect(dialog.getByLabel("Name")).toHaveValue("Cellar");
    await expect(page).toHaveURL(url("/rooms"));
  }
  const asked = page.waitForEvent("dialog");
  await page.evaluate(() => { setTimeout(() => location.reload()); });
  const question = await asked;
  expect(question.type()).toBe("beforeunload");
  await question.dismiss();
  await expect(dialog.getByLabel("Name")).toHaveValue("Cellar");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await expect(dialog).toHaveCount(0);
  await page.goBack();
  await expect(page.getByRole("heading", { name: "Now", exact: true })).toBeVisible();
});
