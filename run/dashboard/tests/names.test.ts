import { expect, test } from "vitest";
import { byName, named } from "../src/logic/names";

test.each([
  [["Rack 10", "Rack 2", "Rack 1"], ["Rack 1", "Rack 2", "Rack 10"]],
  [["Rack 4, outlet", "Rack 10, inlet", "Rack 4, inlet"], ["Rack 4, inlet", "Rack 4, outlet", "Rack 10, inlet"]],
  [["zone 1", "Äther", "Zone 2", "ampere"], ["ampere", "Äther", "zone 1", "Zone 2"]],
])("%j is listed %j", (names, expected) => {
  expect(byName(names.map((name) => ({ name }))).map(({ name }) => name)).toEqual(expected);
});

test("equal names keep their order, and the list that was given stays as it was", () => {
  const given = [{ name: "Rack 2", id: "b" }, { name: "Rack 2", id: "a" }, { name: "Rack 1", id: "c" }];
  expect(byName(given).map(({ id }) => id)).toEqual(["c", "b", "a"]);
  expect(given.map(({ id }) => id)).toEqual(["b", "a", "c"]);
});

test("a name from right to left is isolated from the sentence around it, and no other is changed", () => {
  expect(["Rack 2", "Äther", "רשת 3", "غرفة"].map(named)).toEqual(["Rack 2", "Äther", "\u2068רשת 3\u2069",
    "\u2068غرفة\u2069"]);
});
