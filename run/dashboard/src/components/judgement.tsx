// What somebody says of an anomaly, from which learning learns.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "preact/hooks";
import { api, messageOf, unwrap } from "../api/client";
import { keys } from "../api/queries";
import type { Incident } from "../logic/incidents";

const verdicts = [
  ["right", "Right", "Something was wrong: its hours do not count as usual."],
  ["wrong", "Wrong", "Nothing was wrong: its hours count as usual."],
  ["expected", "Expected", "Somebody knew of it: its hours count as usual."],
] as const;

export function Judgement({ incident: { id, verdict } }: { incident: Incident }) {
  const queries = useQueryClient();
  const [sending, setSending] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const judge = async (chosen: (typeof verdicts)[number][0]) => {
    if (sending) return;
    setSending(true);
    setError(null);
    try {
      await unwrap(api.PUT("/api/v1/incidents/{incident_id}/verdict", { params: { path: { incident_id: id } }, body: { verdict: chosen } }));
      await Promise.all([keys.live, keys.predictions].map((queryKey) => queries.invalidateQueries({ queryKey })));
    } catch (refused) {
      setError(refused);
    }
    setSending(false);
  };
  return (
    <div role="group" aria-label="Was this anomaly right?">
      <div class="segments">
        {verdicts.map(([value, name]) => (
          <button key={value} type="button" aria-pressed={verdict === value} aria-disabled={sending} onClick={() => void judge(value)}>{name}</button>
        ))}
      </div>
      <p class="hint" aria-live="polite">{verdicts.find(([value]) => value === verdict)?.[2] ?? "Was it right? Your verdict teaches what is usual here."}</p>
      {error !== null && <p class="error" role="alert">{messageOf(error)}</p>}
    </div>
  );
}
