// What the search field finds.
import type { Overview } from "./overview";

export interface Entry { path: string; name: string; note: string; words: string }

const entry = (path: string, name: string, note: string, more = ""): Entry =>
  ({ path, name, note, words: `${name} ${note} ${more}`.toLowerCase() });

/** Everything that has a page, pages first. */
export function entriesOf(pages: readonly { path: string; name: string }[], overview: Overview | undefined): Entry[] {
  const rooms = new Map(overview?.rooms.map(({ id, name }) => [id, name]));
  return [
    ...pages.map(({ path, name }) => entry(path, name, "")),
    ...[...rooms].map(([id, name]) => entry(`/rooms/${id}`, name, "room")),
    ...(overview?.sensors ?? []).map(({ id, name, room_id }) =>
      entry(`/sensors/${encodeURIComponent(id)}`, name, rooms.get(room_id) ?? "", id)),
  ];
}

/** So many fit under the field. */
const most = 10;

/** Those that have all the words, names that begin with the text first. */
export function search(entries: readonly Entry[], text: string): Entry[] {
  const wanted = text.toLowerCase().trim();
  const words = wanted.split(/\s+/);
  const found = entries.filter((candidate) => words.every((word) => candidate.words.includes(word)));
  const begins = ({ name }: Entry) => (name.toLowerCase().startsWith(wanted) ? 0 : 1);
  return found.toSorted((a, b) => begins(a) - begins(b)).slice(0, most);
}
