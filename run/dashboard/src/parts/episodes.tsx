// Episodes as a table, each with its alerts folded in it.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, got, reason } from "../api/client";
import { keys } from "../api/queries";
import type { Episode } from "../logic/episodes";
import { decimal, duration, plural } from "../logic/format";
import { Moment } from "./moment";
import { Mark } from "./states";

const together = 6;

export function EpisodeTable({ episodes, names }: { episodes: Episode[]; names?: Map<string, string> }) {
  return (
    <ul class="episodes">
      {episodes.map((episode) => <EpisodeItem key={episode.key} episode={episode} name={names?.get(episode.sensorID) ?? episode.sensorID} linked={names !== undefined} />)}
    </ul>
  );
}

function EpisodeItem({ episode, name, linked }: { episode: Episode; name: string; linked: boolean }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [unfolded, setUnfolded] = useState(false);
  const queries = useQueryClient();
  const hot = episode.type === "temperature";
  const unit = hot ? "°C" : "%";
  const acknowledge = async (ids: number[]) => {
    setBusy(true);
    setError(null);
    try {
      for (let i = 0; i < ids.length; i += together) {
        await Promise.all(ids.slice(i, i + together).map((id) =>
          got(api.POST("/api/v1/alerts/{alert_id}/acknowledge", { params: { path: { alert_id: id } } }))));
      }
    } catch (refused) {
      setError(refused);
    }
    await queries.invalidateQueries({ queryKey: keys.alerts });
    setBusy(false);
  };
  return (
    <li class={`episode ${episode.open.length > 0 ? "open" : "done"}`}>
      <div class="episode-head">
        <p class="what">
          <Mark kind={hot ? "up" : "drop"} />
          <strong>{hot ? "High temperature" : "High humidity"}</strong>
          {linked && <> · <Link href={`/sensors/${encodeURIComponent(episode.sensorID)}`}>{name}</Link></>}
        </p>
        <dl class="facts">
          <div><dt>Peak</dt><dd>{decimal(episode.peak)} {unit}</dd></div>
          <div><dt>Limit</dt><dd>{decimal(episode.limit)} {unit}</dd></div>
          <div><dt>Duration</dt><dd>{episode.alerts.length === 1 ? "one reading" : duration(episode.end - episode.start)}</dd></div>
          <div><dt>Began</dt><dd><Moment at={episode.start} /></dd></div>
        </dl>
        <div class="actions">
          {episode.open.length > 0 ? (
            <button type="button" class="primary" disabled={busy} onClick={() => void acknowledge(episode.open)}>
              {busy ? "Acknowledging…" : `Acknowledge ${episode.open.length === 1 ? "alert" : `all ${episode.open.length}`}`}
              <span class="unseen"> of {name}</span>
            </button>
          ) : <span class="badge online"><Mark kind="ok" />Acknowledged</span>}
          <button type="button" class="quiet" aria-expanded={unfolded} onClick={() => setUnfolded(!unfolded)}>
            {unfolded ? "Hide" : "Show"} {plural(episode.alerts.length, "alert")}<span class="unseen"> of {name}</span>
          </button>
        </div>
      </div>
      {error !== null && <p class="fault" role="alert">{reason(error)}</p>}
      {unfolded && (
        <ol class="alerts">
          {episode.alerts.map((alert) => (
            <li key={alert.id}>
              <Moment at={alert.timestamp} /> <span>{alert.message}</span>
              {alert.acknowledged
                ? <small>acknowledged</small>
                : <button type="button" class="quiet" disabled={busy} onClick={() => void acknowledge([alert.id])}>Acknowledge<span class="unseen"> {alert.message}</span></button>}
            </li>
          ))}
        </ol>
      )}
    </li>
  );
}
