import { stateNames, type State } from "../logic/overview";
import { StatusMark, type MarkKind } from "./states";

const marks: Record<State, MarkKind> = {
  critical: "alert", silent: "offline", warning: "alert", late: "late", unreported: "waiting", ok: "ok",
};

export function StateBadge({ state }: { state: State }) {
  return <span class={`badge ${state}`}><StatusMark kind={marks[state]} />{stateNames[state]}</span>;
}
