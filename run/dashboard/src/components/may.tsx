// What a role may do is shown to those who have it.
import { useQuery } from "@tanstack/preact-query";
import type { ComponentChildren } from "preact";
import { personsQuery } from "../api/queries";
import { atLeast, type Role } from "../logic/roles";

/** Shows its children to who may use them. Until the role is known they are there: the service refuses by itself. */
export function May({ role, children }: { role: Role; children: ComponentChildren }) {
  const { data } = useQuery({ ...personsQuery, staleTime: Infinity });
  const own = data?.find(({ self }) => self)?.role;
  return own === undefined || atLeast(own, role) ? <>{children}</> : null;
}
