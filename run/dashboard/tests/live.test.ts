import { expect, test, vi } from "vitest";
import type { Command, Told } from "../src/api/poll";

/** A tab that is signed in, with a worker that answers what it is given. */
async function tab() {
  const asked: Command[] = [];
  let answer: (told: Told) => void = () => undefined;
  vi.resetModules();
  vi.stubGlobal("self", {});
  vi.stubGlobal("Worker", class {
    set onmessage(hear: (event: { data: Told }) => void) {
      answer = (data) => hear({ data });
    }

    postMessage(command: Command) {
      asked.push(command);
    }
  });
  const { session } = await import("../src/api/session");
  const { askNow, listen } = await import("../src/api/live");
  session.start(`.${btoa(JSON.stringify({ sub: "3", person: 1, iat: 0, exp: 1800 }))}.`, "ana@example.com");
  const heard: Told[] = [];
  listen((told) => heard.push(told));
  const numbers = () => asked.flatMap((command) => ("number" in command ? command.number : []));
  return { askNow, answer, heard, numbers };
}

test("an answer that a later one overtook is not shown, and one after the clock was set back is", async () => {
  const { askNow, answer, heard, numbers } = await tab();
  const now = Date.now();
  const pressed = askNow("before");
  const after = { etag: "after", number: numbers().at(-1) ?? NaN, asked: now };
  answer(after);
  expect(await pressed).toEqual(after);
  answer({ etag: "before", asked: now - 1000 });
  answer({ failure: "hung", asked: now - 9000 });
  expect(heard).toEqual([]);
  const [next, back] = [{ etag: "next", asked: now + 15_000 }, { etag: "back", asked: now - 3_600_000 }];
  answer(next);
  answer(back);
  expect(heard).toEqual([next, back]);
});

test("what a tab asked before a press is not told after the answer to the press", async () => {
  const { askNow, answer, heard, numbers } = await tab();
  const now = Date.now();
  const both = [askNow("before"), askNow("before")];
  const [first, second] = numbers();
  const after = { etag: "after", number: second ?? NaN, asked: now + 1000 };
  answer(after);
  expect(await Promise.all(both)).toEqual([after, after]);
  answer({ etag: "before", number: first ?? NaN, asked: now });
  answer({ etag: "before", asked: now + 500 });
  expect(heard, "of what was before the press").toEqual([]);
});
