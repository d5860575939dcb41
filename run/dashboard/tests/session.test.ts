import { expect, test, vi } from "vitest";

/** A tab of one browser: a copy of the module, on the channel of all. */
async function tab() {
  vi.resetModules();
  return (await import("../src/api/session")).session;
}

const token = (person: number, lasts = 1800) =>
  `head.${btoa(JSON.stringify({ sub: "3", person, iat: 0, exp: lasts }))}.signature`;

test("a sign-out reaches a tab whose page is of an earlier release, and the other way", async () => {
  const earlier = new BroadcastChannel("coldaisle.session");
  const ended: number[] = [];
  earlier.onmessage = ({ data }) => {
    const started = { token: token(1), customerID: 3, email: "ana@example.com", expires: Date.now() + 60_000 };
    if ("ask" in data) earlier.postMessage({ started });
    if ("ended" in data) ended.push(data.ended);
  };
  const ana = await tab();
  await expect.poll(() => ana.get()).toMatchObject({ customerID: 3, person: 1 });
  earlier.postMessage({ ended: 3 });
  await expect.poll(() => ana.get()).toBe(null);
  ana.start(token(1), "ana@example.com");
  ana.end();
  await expect.poll(() => ended).toEqual([3]);
  earlier.close();
});

test("tabs of one person share a session, and those of two persons of an account do not", async () => {
  const ana = await tab();
  ana.start(token(1), "ana@example.com");
  const again = await tab();
  await expect.poll(() => again.get()?.email).toBe("ana@example.com");
  const ben = await tab();
  ben.start(token(2), "ben@example.com");
  ben.start(token(2, 3600), "ben@example.com");
  ana.start(token(1, 2400), "ana@example.com");
  await expect.poll(() => again.get()?.token).toBe(token(1, 2400));
  expect([ana.get()?.person, ben.get()?.person]).toEqual([1, 2]);
  const [anas, againAnas, bens] = [ana, again, ben].map((of) => of.name(of.get()!));
  expect(againAnas).toBe(anas);
  expect(bens, "the channel on which a refused token is told").not.toBe(anas);

  const heard = new BroadcastChannel("coldaisle.session");
  const ended = new Promise((resolve) => {
    heard.onmessage = ({ data }) => "ended" in data && setTimeout(resolve);
  });
  ben.end();
  await ended;
  heard.close();
  expect([ana.get()?.person, again.get()?.person]).toEqual([1, 1]);
});

test("a session that an earlier release kept is of the person of its token", async () => {
  const kept = async (person: number, customerID: number, expires: number) => {
    const session = JSON.stringify({ token: token(person), customerID, email: "", expires });
    vi.stubGlobal("window", { sessionStorage: { getItem: () => session, setItem: () => undefined } });
    return tab();
  };
  const ben = await kept(12, 4, Date.now() + 60_000);
  const heard = new BroadcastChannel("coldaisle.session");
  const answered = new Promise((resolve) => {
    heard.onmessage = ({ data }) => "started" in data && setTimeout(resolve);
  });
  const ana = await kept(11, 3, Date.now() - 60_000);
  await answered;
  heard.close();
  vi.unstubAllGlobals();
  expect(ben.get()?.person).toBe(12);
  expect(ana.get(), "ben answered who asks for a session").toMatchObject({ customerID: 3, person: 11 });
});
