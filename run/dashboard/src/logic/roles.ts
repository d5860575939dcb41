/** What each role may do, the least first. */
export const roles = [
  ["viewer", "Viewer: reads"],
  ["operator", "Operator: also takes incidents and sets maintenance"],
  ["admin", "Admin: also changes rooms, rules and keys"],
  ["owner", "Owner: also changes and removes persons"],
] as const;

export type Role = (typeof roles)[number][0];

const rank = (role: Role) => roles.findIndex(([name]) => name === role);

/** Whether a role may do what another one may. */
export const atLeast = (role: Role | undefined, least: Role) => role !== undefined && rank(role) >= rank(least);

/** The roles up to one. */
export const rolesUpTo = (role: Role) => roles.slice(0, rank(role) + 1);
