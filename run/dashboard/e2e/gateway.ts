// A gateway's own calls made by hand: an independent client of the enrolment and of
// the signed status.
import { createPrivateKey, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import type { Page } from "@playwright/test";
import { expect, expectAccessible, url } from "./user";

async function post(path: string, body: unknown): Promise<Record<string, unknown>> {
  const answer = await fetch(url(path), {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  expect(answer.status, await answer.clone().text()).toBe(200);
  return (await answer.json()) as Record<string, unknown>;
}

/** Enrols by a code, as monitor-gateway does, and returns what reports a status with nodes. */
export async function enrol(code: string) {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const raw = Buffer.from(publicKey.export({ format: "jwk" }).x ?? "", "base64url").toString("base64");
  const { gateway_id: id } = await post("/api/v1/gateways/enrol", { code, public_key: raw, confirm: true });
  const key = createPrivateKey(privateKey.export({ format: "pem", type: "pkcs8" }));
  const boot = randomUUID();
  let sequence = 0;
  return (nodes: string[], name?: string) => {
    const now = new Date().toISOString();
    const request = Buffer.from(JSON.stringify({
      gateway_id: id, nonce: randomUUID(), boot_id: boot, sequence: ++sequence, sent_at: now,
      version: "1.2.3", role: "active",
      clock_offset_ms: 12, outbox_readings: 0,
      nodes: nodes.map((node_id) => ({ node_id, last_heartbeat: now, ...(name && { name }) })),
    }));
    const signature = sign(null, Buffer.concat([Buffer.from(`coldaisle/status/1\n${String(id)}\n`), request]), key);
    return post("/api/v1/gateways/status", {
      gateway_id: id, request: request.toString("base64"), signature: signature.toString("base64"),
    });
  };
}

/** Names a gateway in the dialog and returns the code that it shows. */
export async function addGateway(page: Page, name: string): Promise<string> {
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill(name);
  await dialog.getByRole("button", { name: "Add gateway" }).click();
  const command = await dialog.locator("pre").innerText();
  const code = command.split(" ")[2] ?? "";
  expect(code).toMatch(/^[A-Z0-9-]{20,}$/);
  await expect(dialog.locator("pre")).toHaveText(`monitor-gateway enrol ${code} --api ${new URL(url()).origin}`);
  await expectAccessible(page);
  // Neither Escape nor a press outside closes it.
  for (let i = 0; i < 3; i++) await page.keyboard.press("Escape");
  await page.mouse.click(5, 5);
  await expect(dialog.locator("pre")).toHaveText(command);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await dialog.getByRole("button", { name: "Copy" }).click();
  await expect(dialog.getByText("Copied.")).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toContain(code);
  await dialog.getByRole("button", { name: "Done" }).click();
  return code;
}
