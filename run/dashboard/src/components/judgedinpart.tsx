// Where learning cannot judge, or only in part: of one sensor.
import { timeOfDay } from "../logic/format";
import type { LiveSensor } from "../logic/overview";

/** Why learning does not judge a sensor fully; nothing where it does. */
export function JudgedInPart({ sensor }: { sensor: LiveSensor }) {
  const since = sensor.learning_since;
  switch (sensor.judged_by) {
    case "window": return null;
    case "live_state": return <p class="hint">
      Judged for anomalies in part: its gateway, of another maker, sends no earlier readings along. Steps and noise are
      not seen.
    </p>;
    case "learning": return <p class="hint">Not judged for anomalies yet: learning{since !== null
      && ` since ${timeOfDay(Date.parse(since))}`}. It takes two hours of readings.</p>;
    default: return <p class="hint">Not judged for anomalies: learning has not seen a reading of it yet.</p>;
  }
}
