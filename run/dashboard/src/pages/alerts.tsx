// Active alerts, and the history.
import { useMemo, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { listLimit, useActiveEpisodes, useAllSensors, usePastEpisodes, useRooms } from "../api/queries";
import { alertsIn } from "../logic/episodes";
import { plural } from "../logic/format";
import { EpisodeTable } from "../components/episodes";
import { Empty, Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";

export default function AlertsPage() {
  useTitle("Alerts");
  const [past, setPast] = useState(false);
  const active = useActiveEpisodes();
  const history = usePastEpisodes(past);
  const sensors = useAllSensors(useRooms().data);
  const names = useMemo(() => new Map(sensors.data?.map((sensor) => [sensor.id, sensor.name])), [sensors.data]);
  const shown = past ? history : active;
  return (
    <>
      <div class="heading"><h1>Alerts</h1><Link href="/thresholds">Change thresholds</Link></div>
      <div class="segments" role="group" aria-label="Which alerts">
        <button type="button" aria-pressed={!past} onClick={() => setPast(false)}>Active</button>
        <button type="button" aria-pressed={past} onClick={() => setPast(true)}>History</button>
      </div>
      {shown.error && <Failure error={shown.error} retry={() => void shown.refetch()} />}
      {!shown.data && !shown.error && <Loading what="alerts" />}
      {shown.data && (
        <p class="hint" aria-live="polite">
          {plural(shown.data.length, "episode")} of {plural(alertsIn(shown.data), "alert")}
          {past ? ", newest first." : " to acknowledge."}
          {shown.data.length === listLimit && ` Older ones than these ${listLimit} are not shown.`} Alerts of one sensor less than 5 minutes apart are one episode.
        </p>
      )}
      {shown.data?.length === 0 && (
        <Empty title={past ? "No alert yet" : "Nothing to acknowledge"}>
          <p>A reading above a <Link href="/thresholds">threshold</Link> raises an alert.</p>
        </Empty>
      )}
      <EpisodeTable episodes={shown.data ?? []} names={names} />
    </>
  );
}
