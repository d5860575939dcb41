/** A name in a sentence: one that is written from right to left leaves what stands around it in its place. */
export const named = (name: string) => (/[\u0590-\u08ff]/.test(name) ? `\u2068${name}\u2069` : name);

const collator = new Intl.Collator(undefined, { numeric: true });

/** In the order in which a user looks for a name: Rack 2 before Rack 10. */
export function byName<T extends { name: string }>(named: readonly T[]): T[] {
  return named.toSorted((a, b) => collator.compare(a.name, b.name));
}
