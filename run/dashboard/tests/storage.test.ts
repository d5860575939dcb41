import { expect, test, vi } from "vitest";
import { Stored } from "../src/api/storage";

test("what storage has no room for is known until the page is left", () => {
  const kept = new Map([["key", "old"]]);
  let full = true;
  vi.stubGlobal("window", { localStorage: {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem(key: string, value: string) {
      if (full) throw new DOMException("no room", "QuotaExceededError");
      kept.set(key, value);
    },
  } });
  const stored = new Stored("localStorage", "key");
  expect(stored.set("new")).toBe(false);
  expect(stored.get()).toBe("new");
  full = false;
  expect(stored.set("newest")).toBe(true);
  expect(stored.get()).toBe("newest");
  vi.unstubAllGlobals();
});
