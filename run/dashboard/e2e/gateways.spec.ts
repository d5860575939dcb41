// Gateways on the page, with a gateway's own calls made by hand: an independent
// client of the enrolment and of the signed status.
import { createPrivateKey, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import type { Page } from "@playwright/test";
import { addRoom, expect, expectAccessible, signUp, test, url } from "./user";

async function post(path: string, body: unknown): Promise<Record<string, unknown>> {
  const answer = await fetch(url(path), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  expect(answer.status, await answer.clone().text()).toBe(200);
  return (await answer.json()) as Record<string, unknown>;
}

/** Enrols by a code, as monitor-gateway does, and returns what reports a status with nodes. */
async function enrol(code: string) {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const raw = Buffer.from(publicKey.export({ format: "jwk" }).x ?? "", "base64url").toString("base64");
  const { gateway_id: id } = await post("/api/v1/gateways/enrol", { code, public_key: raw, confirm: true });
  const key = createPrivateKey(privateKey.export({ format: "pem", type: "pkcs8" }));
  const boot = randomUUID();
  let sequence = 0;
  return (nodes: string[]) => {
    const now = new Date().toISOString();
    const request = Buffer.from(JSON.stringify({
      gateway_id: id, nonce: randomUUID(), boot_id: boot, sequence: ++sequence, sent_at: now, version: "1.2.3", role: "active",
      clock_offset_ms: 12, outbox_readings: 0, nodes: nodes.map((node_id) => ({ node_id, last_heartbeat: now })),
    }));
    const signature = sign(null, Buffer.concat([Buffer.from(`coldaisle/status/1\n${String(id)}\n`), request]), key);
    return post("/api/v1/gateways/status", { gateway_id: id, request: request.toString("base64"), signature: signature.toString("base64") });
  };
}

/** Adds a gateway on the page and returns the code that it shows. */
async function addGateway(page: Page, name: string): Promise<string> {
  await page.goto(url("/gateways"));
  await page.getByRole("button", { name: "Add gateway" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill(name);
  await dialog.getByRole("button", { name: "Add gateway" }).click();
  const code = await dialog.locator("strong").innerText();
  await expect(dialog.locator("pre")).toHaveText(`monitor-gateway enrol ${code} --api ${new URL(url()).origin}`);
  await expectAccessible(page);
  await dialog.getByRole("button", { name: "Done" }).click();
  return code;
}

test("a gateway is added, enrolled, seen and revoked", async ({ page }) => {
  await signUp(page);
  await page.goto(url("/gateways"));
  await expect(page.getByText("Enrol your first gateway")).toBeVisible();
  const code = await addGateway(page, "Basement");
  const row = page.getByRole("row", { name: /Basement/ });
  await expect(row).toContainText("Waiting for its code");
  const report = await enrol(code);
  await report(["n1", "n2"]);
  await page.reload();
  await expect(row).toContainText("Enrolled");
  await expect(row).toContainText("1.2.3");
  await expect(row).toContainText("12 ms");
  await expect(page.getByText(code)).toHaveCount(0);
  await expectAccessible(page);
  await row.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke gateway" }).click();
  await expect(row).toContainText("Revoked");
  expect((await report([])).revoked).toBe(true);
});

test("discovered nodes are offered first, and an id can still be typed", async ({ page }) => {
  await signUp(page);
  const report = await enrol(await addGateway(page, "Attic"));
  const node = `found-${Date.now()}`;
  await report([node]);
  await page.goto(url());
  await addRoom(page, "Loft");
  await page.getByRole("button", { name: "Add sensor" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(node).check();
  await expect(dialog.getByLabel("Node id")).toHaveValue(node);
  await expectAccessible(page);
  await dialog.getByLabel("Name").fill("Door");
  await dialog.getByRole("button", { name: "Add sensor" }).click();
  await expect(page.getByRole("link", { name: "Door" })).toBeVisible();
  // It is a sensor now, and offered no more.
  await page.getByRole("button", { name: "Add sensor" }).click();
  await expect(dialog.getByLabel("Node id")).toBeVisible();
  await expect(dialog.getByText("Discovered by your gateways")).toHaveCount(0);
});
