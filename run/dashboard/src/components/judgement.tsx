// What somebody says of an anomaly, from which learning learns.
import { useVerdict } from "../api/excursions";
import { messageOf } from "../api/client";
import type { Excursion } from "../logic/excursions";

const verdicts = [
  ["right", "Right", "Something was wrong: its hours do not count as usual."],
  ["wrong", "Wrong", "Nothing was wrong: its hours count as usual."],
  ["expected", "Expected", "Somebody knew of it: its hours count as usual."],
] as const;

export function Judgement({ excursion: { id, verdict } }: { excursion: Excursion }) {
  const judging = useVerdict(id);
  return (
    <div role="group" aria-label="Was this anomaly right?">
      <div class="segments small">
        {verdicts.map(([value, name]) => (
          <button key={value} type="button" aria-pressed={verdict === value} aria-disabled={judging.isPending}
            onClick={() => !judging.isPending && judging.mutate(value)}>{name}</button>
        ))}
      </div>
      <p class="hint" aria-live="polite">
        {verdicts.find(([value]) => value === verdict)?.[2] ?? "Was it right? Your verdict teaches what is usual here."}
      </p>
      {judging.error && <p class="error" role="alert">{messageOf(judging.error)}</p>}
    </div>
  );
}
