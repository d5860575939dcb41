import type { Condition, Freshness } from "../logic/condition";
import { plural } from "../logic/format";
import { StatusMark, type MarkKind } from "./states";

const words: Record<Freshness, { kind: MarkKind; text: string }> = {
  online: { kind: "ok", text: "Online" },
  late: { kind: "late", text: "Late" },
  offline: { kind: "offline", text: "Offline" },
  waiting: { kind: "waiting", text: "Waiting for first reading" },
};

export function FreshnessBadge({ freshness }: { freshness: Freshness }) {
  const { kind, text } = words[freshness];
  return <span class={`badge ${freshness}`}><StatusMark kind={kind} />{text}</span>;
}

export function ConditionBadges({ condition }: { condition: Condition }) {
  return (
    <span class="badges">
      {condition.tooHot && <span class="badge alert"><StatusMark kind="alert" />Too hot</span>}
      {condition.tooHumid && <span class="badge alert"><StatusMark kind="alert" />Too humid</span>}
      {condition.alerts > 0 && <span class="badge warn"><StatusMark kind="alert" />{plural(condition.alerts, "alert")}</span>}
      <FreshnessBadge freshness={condition.freshness} />
    </span>
  );
}
