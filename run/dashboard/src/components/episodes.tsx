// A list of episodes. Each can be unfolded to show its alerts.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, unwrap, messageOf } from "../api/client";
import { keys, listLimit, useAlertsOf } from "../api/queries";
import type { Episode } from "../logic/episodes";
import { count, decimal, duration, plural } from "../logic/format";
import { Timestamp } from "./timestamp";
import { Failure, Loading, StatusMark } from "./states";

const keyOf = (episode: Episode) => `${episode.sensor_id} ${episode.alert_type} ${episode.start_time}`;

export function EpisodeTable({ episodes, names }: { episodes: readonly Episode[]; names?: Map<string, string> }) {
  return (
    <ul class="episodes">
      {episodes.map((episode) => (
        <EpisodeItem key={keyOf(episode)} episode={episode} name={names?.get(episode.sensor_id) ?? episode.sensor_id} linked={names !== undefined} />
      ))}
    </ul>
  );
}

/** Changes alerts, and loads the lists again afterwards. */
function useChange() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const queries = useQueryClient();
  const change = async (act: () => Promise<unknown>) => {
    setBusy(true);
    setError(null);
    await act().catch(setError);
    await queries.invalidateQueries({ queryKey: keys.alerts });
    setBusy(false);
  };
  return { busy, change, errorText: error !== null && <p class="error" role="alert">{messageOf(error)}</p> };
}

function EpisodeItem({ episode, name, linked }: { episode: Episode; name: string; linked: boolean }) {
  const { busy, change, errorText } = useChange();
  const [unfolded, setUnfolded] = useState(false);
  const hot = episode.alert_type === "temperature";
  const unit = hot ? "°C" : "%";
  const open = episode.unacknowledged_count;
  // Only the alerts that are shown here: newer ones stay active.
  const acknowledge = () => change(() => unwrap(api.POST("/api/v1/alerts/episodes/acknowledge", {
    body: { sensor_id: episode.sensor_id, alert_type: episode.alert_type, start_time: episode.start_time, end_time: episode.end_time },
  })));
  return (
    <li class={`episode ${open > 0 ? "open" : "done"}`}>
      <div class="episode-head">
        <p class="what">
          <StatusMark kind={hot ? "up" : "drop"} />
          <strong>{hot ? "High temperature" : "High humidity"}</strong>
          {linked && <> · <Link href={`/sensors/${encodeURIComponent(episode.sensor_id)}`}>{name}</Link></>}
        </p>
        <dl class="facts">
          <div><dt>Peak</dt><dd>{decimal(episode.peak)} {unit}</dd></div>
          <div><dt>Limit</dt><dd>{decimal(episode.threshold)} {unit}</dd></div>
          <div><dt>Duration</dt><dd>{episode.alert_count === 1 ? "one reading" : duration(Date.parse(episode.end_time) - Date.parse(episode.start_time))}</dd></div>
          <div><dt>Began</dt><dd><Timestamp at={episode.start_time} /></dd></div>
        </dl>
        <div class="actions">
          {open > 0 ? (
            <button type="button" class="primary" disabled={busy} onClick={() => void acknowledge()}>
              {busy ? "Acknowledging…" : `Acknowledge ${open === 1 ? "alert" : `all ${count(open)}`}`}
              <span class="unseen"> of {name}</span>
            </button>
          ) : <span class="badge online"><StatusMark kind="ok" />Acknowledged</span>}
          <button type="button" class="quiet" aria-expanded={unfolded} onClick={() => setUnfolded(!unfolded)}>
            {unfolded ? "Hide" : "Show"} {plural(episode.alert_count, "alert")}<span class="unseen"> of {name}</span>
          </button>
        </div>
      </div>
      {errorText}
      {unfolded && <AlertsOf episode={episode} />}
    </li>
  );
}

function AlertsOf({ episode }: { episode: Episode }) {
  const { data, error, refetch } = useAlertsOf(episode);
  const { busy, change, errorText } = useChange();
  if (error) return <Failure error={error} retry={() => void refetch()} />;
  if (!data) return <Loading what="alerts" />;
  const acknowledge = (id: number) => change(() =>
    unwrap(api.POST("/api/v1/alerts/{alert_id}/acknowledge", { params: { path: { alert_id: id } } })));
  return (
    <>
      {errorText}
      {episode.alert_count > data.length && <p class="hint">The newest {data.length} of {count(episode.alert_count)}, of at most {listLimit} read.</p>}
      <ol class="alerts">
        {data.map((alert) => (
          <li key={alert.id}>
            <Timestamp at={alert.timestamp} /> <span>{alert.message}</span>
            {alert.acknowledged
              ? <small>acknowledged</small>
              : <button type="button" class="quiet" disabled={busy} onClick={() => void acknowledge(alert.id)}>Acknowledge<span class="unseen"> {alert.message}</span></button>}
          </li>
        ))}
      </ol>
    </>
  );
}
