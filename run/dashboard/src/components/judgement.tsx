// What somebody says of anomalies, from which learning learns.
import { useVerdict } from "../api/excursions";
import { messageOf } from "../api/client";
import type { Excursion } from "../logic/excursions";

const verdicts = [
  ["right", "Right", "Something was wrong: its hours do not count as usual."],
  ["wrong", "Wrong", "Nothing was wrong: its hours count as usual."],
  ["expected", "Expected", "Somebody knew of it: its hours count as usual."],
] as const;

/** One verdict on one anomaly, or on all those of an incident. */
export function Judgement({ of }: { of: Excursion[] }) {
  const judging = useVerdict(of.map(({ id }) => id));
  const given = of.every(({ verdict }) => verdict === of[0]?.verdict) ? of[0]?.verdict : null;
  const [name, asked, begin] = of.length === 1 ? ["Was this anomaly right?", "Was it right?", ""]
    : ["Were all anomalies right?", `Were all ${of.length} anomalies right?`, `All ${of.length} anomalies. `];
  const said = verdicts.find(([value]) => value === given)?.[2];
  return (
    <div role="group" aria-label={name}>
      <div class="segments small">
        {verdicts.map(([value, name]) => (
          <button key={value} type="button" aria-pressed={given === value} aria-disabled={judging.isPending}
            onClick={() => !judging.isPending && judging.mutate(value)}>{name}</button>
        ))}
      </div>
      <p class="hint" aria-live="polite">
        {said ? begin + said : `${asked} Your verdict teaches what is usual here.`}
      </p>
      {judging.error && <p class="error" role="alert">{messageOf(judging.error)}</p>}
    </div>
  );
}
