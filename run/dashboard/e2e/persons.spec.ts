// Persons on the page: one is invited, joins, is given less and is removed.
import {
  addRoom, addSensor, ask, expect, expectAccessible, incidentOf, password, pressUntil, sendReading, signUp, test,
  tokenOf, url,
} from "./user";

test("a person is invited, joins by the link, loses a role and is removed", async ({ page, browser }) => {
  await signUp(page);
  await page.goto(url("/account"));
  await page.getByLabel("Your name").fill("Berta Boss");
  await page.getByRole("button", { name: "Save profile" }).click();
  await expect(page.getByText("Saved.")).toBeVisible();
  await page.getByRole("link", { name: "People" }).click();
  await expect(page.getByRole("row", { name: /Berta Boss \(you\).*Owner/ })).toBeVisible();

  const email = `ana${Date.now()}@example.com`;
  await page.getByRole("button", { name: "Invite" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("E-mail").fill(email);
  await dialog.getByLabel("Role").selectOption({ index: 2 });
  await expectAccessible(page);
  await dialog.getByRole("button", { name: "Invite" }).click();
  const link = await dialog.locator("pre").innerText();
  expect(link).toMatch(/\/join#[A-Z2-7]{26}$/);
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(page.getByText(`${email}, Admin, by Berta Boss`)).toBeVisible();
  await expectAccessible(page);

  const ana = await (await browser.newContext()).newPage();
  await ana.goto(link);
  await expect(ana.getByText(/^Berta Boss invites you/)).toBeVisible();
  await expectAccessible(ana);
  await ana.getByLabel("Your name").fill("Ana");
  await ana.getByLabel("Password").fill(password);
  await pressUntil(ana.getByRole("button", { name: "Join" }), (patience) =>
    expect(ana.getByRole("heading", { name: "Now", exact: true })).toBeVisible(patience));
  expect(ana.url()).toBe(url("/"));
  await ana.goto(url("/persons"));
  await expect(ana.getByRole("row", { name: /Ana \(you\).*Admin/ })).toBeVisible();
  await expect(ana.getByRole("button", { name: /Remove/ })).toHaveCount(0);

  await page.reload();
  await expect(page.getByRole("heading", { name: "Open invitations" })).toHaveCount(0);
  await page.getByRole("button", { name: "Change role of Ana" }).click();
  await dialog.getByLabel("Role").selectOption({ index: 0 });
  await dialog.getByRole("button", { name: "Change role" }).click();
  await expect(page.getByRole("row", { name: /Ana .*Viewer/ })).toBeVisible();
  await ana.reload();
  await expect(ana.getByText("Your session has ended")).toBeVisible();
  await page.getByRole("button", { name: "Remove of Ana" }).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await expect(page.getByRole("row", { name: /Ana / })).toHaveCount(0);

  await page.goto(url("/audit"));
  for (const [who, what] of [["Berta Boss", "removed person Ana"], ["Ana", "joined as admin"]]) {
    await expect(page.getByRole("row", { name: new RegExp(`${who} ${what}`) })).toBeVisible();
  }
  await ana.goto(link);
  await ana.reload();
  await expect(ana.getByText("Invitation is unknown, used, or has expired")).toBeVisible();
});

test("a viewer is shown no button that the service would refuse", async ({ page, browser }) => {
  await signUp(page);
  await addRoom(page, "Attic");
  await addRoom(page, "Hall");
  const room = new URL(page.url()).pathname;
  const node = `role-${Date.now()}`;
  await addSensor(page, node, "Rack 1");
  await sendReading(node, 51, 40);
  const token = await tokenOf(page);
  const incident = await incidentOf(token, node);
  await ask(token, "POST", "/api/v1/api-keys", { name: "Wall", scope: "read" });
  const { code } = await ask<{
    code: string;
  }>(token, "POST", "/api/v1/invitations", { email: `viewer${Date.now()}@example.com`, role: "viewer" });
  const viewer = await (await browser.newContext()).newPage();
  await viewer.goto(url(`/join#${code}`));
  await viewer.getByLabel("Your name").fill("Vera");
  await viewer.getByLabel("Password").fill(password);
  await pressUntil(viewer.getByRole("button", { name: "Join" }), (patience) =>
    expect(viewer.getByText(/Hall is too hot/).first()).toBeVisible(patience));
  await page.goto(url("/"));
  await expect(page.getByText("No sensor here yet. Add one to this room.")).toBeVisible();
  await expect(viewer.getByText("No sensor here yet.", { exact: true })).toBeVisible();
  const changing = new RegExp("^(I have it|Comment|Snooze|Hand over|Add |Create|Change|Delete|Revoke|Rename|"
    + "More of|Arrange|Mark all|Retrain|Start|Invite|Remove|Write it|Save)");
  for (const path of [
    "/", "/incidents", `/incidents/${incident}`, "/rooms", room, `/sensors/${node}`, "/setup", "/rules", "/maintenance",
    "/gateways", "/persons", "/keys", "/watches", "/drills", "/predictions", "/settings",
  ]) {
    await page.goto(url(path));
    const theirs = page.locator("main").getByRole("button", { name: changing });
    if (path !== "/watches") await expect(theirs, `the owner on ${path}`).not.toHaveCount(0);
    await viewer.goto(url(path));
    await expect(viewer.getByRole("heading", { level: 1 })).toBeAttached();
    await expect(viewer.locator(".loading")).toHaveCount(0);
    await expect(viewer.locator("main").getByRole("button", { name: changing }), path).toHaveCount(0);
  }
  await page.goto(url(`/incidents/${incident}`));
  await page.getByRole("button", { name: /^Hand over/ }).click();
  await page.getByLabel("To", { exact: true }).fill("Vera");
  await expect(page.getByText("Vera is a viewer, who cannot act on it. Is it right?")).toBeVisible();
});
