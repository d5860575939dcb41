import { expect, test, vi } from "vitest";
import { requests } from "../src/api/requests";

test("a record may take as long as a download", async () => {
  vi.stubGlobal("fetch", async () => new Response("PK"));
  const patience = vi.spyOn(AbortSignal, "timeout");
  const path = { room_id: 3, month: "2026-11" };
  await requests.GET("/api/v1/records/{room_id}/{month}", { baseUrl: "http://localhost", params: { path },
    parseAs: "blob" });
  expect(patience).toHaveBeenCalledExactlyOnceWith(600_000);
});
