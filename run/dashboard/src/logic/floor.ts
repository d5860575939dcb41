// Where sensors stand in a room. Floors of data centres are numbered by tiles: columns by
// letters, rows by numbers. A sensor's position that begins with a tile has a place on
// the map; the rest of it is free text, which stays: "C7 U40".
import type { LiveSensor } from "./overview";

/** Both from 1. */
export interface Tile { column: number; row: number }

/** How many tiles a floor has at most each way: what is further apart is no floor plan. */
export const mostTiles = 64;

const pattern = /^([A-Z]{1,2})([1-9]\d?)(?=$|\s)\s*/;

export function tileOf(position: string | null): Tile | null {
  const [, letters, row] = pattern.exec(position ?? "") ?? [];
  if (letters === undefined || row === undefined) return null;
  const column = [...letters].reduce((sum, letter) => sum * 26 + letter.charCodeAt(0) - 64, 0);
  return column > mostTiles || Number(row) > mostTiles ? null : { column, row: Number(row) };
}

export function columnName(column: number): string {
  return (column > 26 ? String.fromCharCode(64 + Math.floor((column - 1) / 26)) : "")
    + String.fromCharCode(65 + ((column - 1) % 26));
}

export const tileName = ({ column, row }: Tile) => `${columnName(column)}${row}`;

/** A position with another tile, or none. */
export function withTile(position: string | null, tile: Tile | null): string | null {
  const rest = tileOf(position) ? (position ?? "").replace(pattern, "") : (position ?? "");
  return [tile ? tileName(tile) : "", rest].filter(Boolean).join(" ") || null;
}

export interface Floor {
  columns: number;
  /** Of each sensor, in their order, from the first column and row that is used. */
  places: Tile[];
}

/** The map of a room, or null when no sensor has a tile.
 * Those without one come below; of several on a tile the first has it. */
export function floorOf(sensors: readonly Pick<LiveSensor, "position">[]): Floor | null {
  const taken = new Set<string>();
  const tiles = sensors.map(({ position }) => {
    const tile = tileOf(position);
    if (!tile || taken.has(tileName(tile))) return null;
    taken.add(tileName(tile));
    return tile;
  });
  const placed = tiles.filter((tile) => tile !== null);
  if (placed.length === 0) return null;
  const [left, right] = [Math.min(...placed.map(({ column }) => column)),
    Math.max(...placed.map(({ column }) => column))];
  const [top, bottom] = [Math.min(...placed.map(({ row }) => row)), Math.max(...placed.map(({ row }) => row))];
  const columns = Math.max(right - left + 1,
    placed.length < sensors.length ? Math.min(sensors.length - placed.length, 12) : 1);
  let below = 0;
  const places = tiles.map((tile): Tile => {
    if (tile) return { column: tile.column - left + 1, row: tile.row - top + 1 };
    const next = below++;
    return { column: (next % columns) + 1, row: bottom - top + 2 + Math.floor(next / columns) };
  });
  return { columns, places };
}

/** What an arrow on the keyboard moves by. */
export const arrows: Record<string, { across: number; down: number }> = {
  ArrowRight: { across: 1, down: 0 }, ArrowLeft: { across: -1, down: 0 }, ArrowDown: { across: 0, down: 1 },
  ArrowUp: { across: 0, down: -1 },
};

/** The place of the sensor that an arrow leads to: the nearest one on that side. */
export function neighbour(places: readonly Tile[], from: number, key: string): number | undefined {
  const here = places[from];
  const step = arrows[key];
  if (!here || !step) return undefined;
  const { across, down } = step;
  let best: number | undefined;
  let least = Infinity;
  for (const [i, { column, row }] of places.entries()) {
    const ahead = (column - here.column) * across + (row - here.row) * down;
    const aside = Math.abs((column - here.column) * down) + Math.abs((row - here.row) * across);
    if (ahead > 0 && ahead + 3 * aside < least) [best, least] = [i, ahead + 3 * aside];
  }
  return best;
}

/** An arrangement in the making: the tile of each sensor, null for one without. */
export type Plan = ReadonlyMap<string, Tile | null>;

/** Puts a sensor on a tile. Who was there goes where it came from. */
export function put(plan: Plan, id: string, tile: Tile | null): Plan {
  const next = new Map(plan);
  const from = plan.get(id) ?? null;
  for (const [other, at] of plan) {
    if (tile && at && other !== id && at.column === tile.column && at.row === tile.row) next.set(other, from);
  }
  return next.set(id, tile);
}

/** Sets those without a tile out in rows, below what is there. */
export function fill(plan: Plan, columns: number): Plan {
  const next = new Map(plan);
  const rows = [...plan.values()].map((tile) => tile?.row ?? 0);
  let row = Math.max(0, ...rows) + 1;
  let column = 1;
  for (const [id, tile] of plan) {
    if (tile || row > mostTiles) continue;
    next.set(id, { column, row });
    if (++column > columns) [column, row] = [1, row + 1];
  }
  return next;
}
