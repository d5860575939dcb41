const collator = new Intl.Collator(undefined, { numeric: true });

/** In the order in which a user looks for a name: Rack 2 before Rack 10. */
export function byName<T extends { name: string }>(named: readonly T[]): T[] {
  return named.toSorted((a, b) => collator.compare(a.name, b.name));
}
