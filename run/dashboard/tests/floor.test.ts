import { expect, test } from "vitest";
import { fill, floorOf, neighbour, put, tileName, tileOf, withTile, type Plan } from "../src/logic/floor";

test.each([
  ["C7", { column: 3, row: 7 }], ["AB12 U40", { column: 28, row: 12 }], ["R12/U40", null], ["Rack 7", null],
  ["c7", null], ["A0", null], ["ZZ9", null], [null, null],
] as const)("the tile of %s", (position, tile) => expect(tileOf(position)).toEqual(tile));

test("names of tiles are read back", () => {
  for (let column = 1; column <= 64; column++) expect(tileOf(tileName({ column, row: 3 }))).toEqual({ column, row: 3 });
});

test("free text stays when the tile changes or goes", () => {
  expect(withTile("R12/U40", { column: 3, row: 7 })).toBe("C7 R12/U40");
  expect(withTile("C7 R12/U40", { column: 4, row: 7 })).toBe("D7 R12/U40");
  expect(withTile("C7 R12/U40", null)).toBe("R12/U40");
  expect(withTile("C7", null)).toBeNull();
});

test("a floor begins at the first tile that is used, the rest comes below", () => {
  const floor = floorOf([{ position: "C7" }, { position: "E9" }, { position: null }, { position: "C7" }]);
  expect(floor).toEqual({
    columns: 3, places: [{ column: 1, row: 1 }, { column: 3, row: 3 }, { column: 1, row: 4 }, { column: 2, row: 4 }],
  });
  expect(floorOf([{ position: "R12/U40" }])).toBeNull();
});

test("an arrow leads to the nearest sensor on its side", () => {
  const places = [{ column: 1, row: 1 }, { column: 4, row: 1 }, { column: 1, row: 3 }, { column: 2, row: 2 }];
  expect(neighbour(places, 0, "ArrowRight")).toBe(1);
  expect(neighbour(places, 0, "ArrowDown")).toBe(2);
  expect(neighbour(places, 1, "ArrowLeft")).toBe(0);
  expect(neighbour(places, 0, "ArrowUp")).toBeUndefined();
  expect(neighbour(places, 0, "Home")).toBeUndefined();
});

test("who is put on a taken tile changes places with who was there", () => {
  const plan: Plan = new Map([["a", { column: 1, row: 1 }], ["b", { column: 2, row: 1 }], ["c", null]]);
  expect([...put(plan, "a", { column: 2, row: 1 })])
    .toEqual([["a", { column: 2, row: 1 }], ["b", { column: 1, row: 1 }], ["c", null]]);
  expect([...put(plan, "c", { column: 1, row: 1 })])
    .toEqual([["a", null], ["b", { column: 2, row: 1 }], ["c", { column: 1, row: 1 }]]);
});

test("those without a tile are set out below", () => {
  const plan: Plan = new Map([["a", { column: 5, row: 2 }], ["b", null], ["c", null], ["d", null]]);
  expect([...fill(plan, 2).values()])
    .toEqual([{ column: 5, row: 2 }, { column: 1, row: 3 }, { column: 2, row: 3 }, { column: 1, row: 4 }]);
});
